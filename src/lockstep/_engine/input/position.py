"""Where the data stand: what belongs to a position besides the source's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from lockstep._engine.step.batches import EvenShard, GatherIndices, RaggedShard
from lockstep.errors import CheckpointError

VERSION = 1
_END = object()


class Marks:
    """The positions after the batches that are under way, by the number of batches before them."""

    def __init__(self) -> None:
        self.begin(0, None)

    def begin(self, number: int, mark: Any) -> None:
        """Starts anew, with the position after `number` batches of a pass."""
        self._first = number
        self._marks: deque[Any] = deque([mark])

    def add(self, mark: Any) -> None:
        """Notes the position after the next batch."""
        self._marks.append(mark)

    def after(self, number: int) -> Any:
        """Returns the position after `number` batches."""
        return self._marks[number - self._first]

    def forget(self, number: int) -> None:
        """Forgets the positions before that."""
        while self._first < number and len(self._marks) > 1:
            self._marks.popleft()
            self._first += 1


def rows_of(batch: Any) -> int | None:
    """Returns how many rows a global batch has, if its arrays say so."""
    if isinstance(batch, GatherIndices):
        return len(batch.rows)
    if isinstance(batch, EvenShard):
        return batch.count
    if isinstance(batch, RaggedShard):
        return sum(batch.counts) or None
    return next((np.shape(leaf)[0] for leaf in jax.tree.leaves(batch) if np.shape(leaf)), None)


def pass_over(batches: Iterator[Any], count: int, rows: int | None) -> None:
    """Reads batches that were trained on before, and drops them.

    Raises:
        CheckpointError: If they are of another size, or too few.
    """
    for number in range(count):
        batch = next(batches, _END)
        if batch is _END:
            raise CheckpointError(
                f"The data must be those of the checkpoint, of whose pass {count} batches were trained on. Received: "
                f"data that end after {number} batches. Give the same data, or start anew in another directory."
            )
        if number == 0 and rows is not None and (found := rows_of(batch)) is not None:
            demand_same_rows(rows, found)


def demand_same_rows(saved: int, found: int) -> None:
    """Compares global batch sizes.

    Raises:
        CheckpointError: If they differ.
    """
    if saved != found:
        raise CheckpointError(
            f"Training goes on with the global batch that it began with: {saved} examples. Received: batches of "
            f"{found}. Use batches of {saved}, on any number of workers and devices, or start anew in another "
            "directory."
        )


def demand_same(what: str, saved: Any, found: Any) -> None:
    """Raises `CheckpointError` unless the data are what they were."""
    if saved != found:
        raise CheckpointError(
            f"The data must be those of the checkpoint: {what} was {saved!r}. Received: {found!r}. Give the same data, "
            "or start anew in another directory."
        )
