"""What the other parts of lockstep need of a dataset, and users do not."""

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
    """Returns how many threads compute its elements at most."""
    return dataset._threads


def ahead_of(dataset: Dataset) -> int:
    """Returns how many elements are to be computed before they are asked for."""
    return dataset._ahead


def begin_pass(dataset: Dataset) -> Run:
    """Begins the next pass."""
    return dataset._next_run()


def iterator_of(dataset: Dataset, run: Run) -> DatasetIterator:
    """Returns an iterator over the host elements of a pass."""
    return dataset._iterator(lambda element: element, run)


def follow(dataset: Dataset, entropy: int) -> None:
    """Takes over what stands in for seeds that were not given."""
    dataset._entropy = entropy


def continue_after(dataset: Dataset, position: dict[str, Any]) -> None:
    """Makes the next pass the one that follows a position's."""
    dataset._continue_after(position)
