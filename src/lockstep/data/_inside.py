"""Access to a dataset's private state for the other packages of lockstep."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

from lockstep.data._dataset import Dataset
from lockstep.data._iterator import DatasetIterator
from lockstep.data._plan import Node, Run


def plan_of(dataset: Dataset) -> Node:
    """Returns the plan."""
    return dataset._plan


def threads_of(dataset: Dataset) -> int:
    """Returns the largest number of threads that compute its elements."""
    return dataset._threads


def ahead_of(dataset: Dataset) -> int:
    """Returns the number of elements to prefetch."""
    return dataset._ahead


def begin_pass(dataset: Dataset) -> Run:
    """Begins the next pass."""
    return dataset._next_run()


def iterator_of(dataset: Dataset, run: Run) -> DatasetIterator:
    """Returns an iterator over the host elements of a pass."""
    return dataset._iterator(lambda element: element, run)


def follow(dataset: Dataset, entropy: int) -> None:
    """Sets the entropy that unseeded random choices use, such as the chief's."""
    dataset._entropy = entropy


def continue_after(dataset: Dataset, position: dict[str, Any]) -> None:
    """Makes the next pass the one that follows a position's."""
    dataset._continue_after(position)
