"""Batches between a source and the devices: their description, this worker's rows of them, and the data's position."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.samples import Sample
from lockstep._engine.step.batches import EvenShard, GatherIndices, RaggedShard
from lockstep._types import JSON, ArrayLike, PyTree, SourcePosition
from lockstep.errors import CheckpointError, InputError

VERSION = 1
_END = object()


@dataclass(frozen=True)
class WithPosition:
    """A batch with the position of the data after it.

    Attributes:
        batch: The batch, or this worker's shard of it.
        position: The position.
        sample: A sample of the elements that the global batch is made of, if workers compare them.
    """

    batch: Any
    position: Any
    sample: Sample | None = None


def unwrap(batch: Any) -> Any:
    """Returns a batch without its position."""
    return batch.batch if isinstance(batch, WithPosition) else batch


def sample_of(batch: Any, number: int) -> Sample | None:
    """Returns a sample of a global batch that is equal on all workers; `None` where each has rows of its own.

    Args:
        batch: The batch.
        number: Its number in the pass: each shows other rows.
    """
    # Of a plan the elements are compared, because each worker computes other rows.
    if isinstance(batch, WithPosition):
        return batch.sample
    return None if isinstance(batch, (GatherIndices, EvenShard, RaggedShard)) else Sample(batch, number)


def signature(batch: Any) -> str:
    """Describes each array of a batch, for example "[0]: float32(64, 28, 28), [1]: int64(64,)".

    It is equal on all workers for the same global batch; of ragged shards it leaves out the number of rows.
    """
    batch = unwrap(batch)
    rows: Any = None
    data = batch.shapes if isinstance(batch, GatherIndices) else batch
    if isinstance(batch, EvenShard):
        rows, data = batch.count, batch.data
    elif isinstance(batch, RaggedShard):
        rows, data = "rows", batch.data
    return ", ".join(f"{path}: {array}" for path, array in describe_arrays(data, rows).items())


def describe_arrays(data: PyTree, rows: ArrayLike = None) -> dict[str, str]:
    """Returns the dtype and the shape of each array by its path, with `rows` in place of the number of rows."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(data)
    return {jax.tree_util.keystr(path): _describe(leaf, rows) for path, leaf in leaves}


def _describe(leaf: ArrayLike, rows: ArrayLike) -> str:
    shape = leaf.shape if hasattr(leaf, "shape") else np.shape(leaf)
    if rows is not None and shape:
        shape = (rows, *shape[1:])
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        dtype = type(leaf).__name__
    elif dtype.kind != "O":
        dtype = jax.dtypes.canonicalize_dtype(dtype)  # That on the devices: workers may pass float64 and float32.
    return f"{dtype}({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def local_row_count(batch: Any) -> int | None:
    """Returns how many rows this worker adds to a batch; `None` for what is no ragged shard."""
    batch = unwrap(batch)
    return batch.rows if isinstance(batch, RaggedShard) else None


def with_counts(batch: Any, counts: Sequence[int]) -> Any:
    """Returns a ragged shard that knows how many rows each worker adds."""
    if isinstance(batch, WithPosition):
        return replace(batch, batch=with_counts(batch.batch, counts))
    return RaggedShard(batch.data, tuple(counts))


def nbytes(batch: Any) -> int:
    """Returns about how many bytes of it this worker holds."""
    batch = unwrap(batch)
    if isinstance(batch, (GatherIndices, EvenShard, RaggedShard)):
        return batch.nbytes
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(batch))


def not_empty(batch: Any) -> Any:
    """Returns a batch; raises `InputError` for `None`."""
    if batch is None:
        raise no_batch()
    return batch


def no_batch() -> InputError:
    """Returns the error for data that are empty."""
    return InputError("The data must hold at least one batch. Received: no batch at all. Check its source.")


@dataclass(frozen=True)
class Position:
    """How far a feed has handed out its data, counted in global batches.

    Attributes:
        batches: Batches of the open pass that were handed out; with `steps_per_epoch` a pass may span epochs.
        epoch_start: Batches of the pass before the first one of the open epoch.
        skipped: Batches of the open epoch (between epochs: of the next one) that an interrupted run has trained on.
        pass_length: Batches of a whole pass, if known.
        in_epoch: Whether an epoch is open.
        exhausted: Whether data that can be read once have ended.
    """

    batches: int = 0
    epoch_start: int = 0
    skipped: int = 0
    pass_length: int | None = None
    in_epoch: bool = False
    exhausted: bool = False

    def begin_pass(self) -> Position:
        """Returns the position at the beginning of a pass."""
        return replace(self, batches=0)

    def begin_epoch(self) -> Position:
        """Returns the position at the beginning of an epoch, or where an interrupted one goes on."""
        return replace(self, epoch_start=self.batches - self.skipped, in_epoch=True)

    def advance(self, batches: int) -> Position:
        """Returns the position after so many more batches."""
        return replace(self, batches=self.batches + batches)

    def end_pass(self, single_pass: bool) -> Position:
        """Returns the position after the data have ended, which tells how long a pass is."""
        length = self.batches if self.pass_length is None else self.pass_length
        return replace(self, pass_length=length, exhausted=single_pass)

    def end_epoch(self) -> Position:
        """Returns the position between this epoch and the next one."""
        return replace(self, in_epoch=False, skipped=0)

    def rewind(self) -> Position:
        """Returns the position at the beginning of a pass and of an epoch."""
        return replace(self, batches=0, skipped=0)

    def after_steps(self, steps: int) -> int:
        """Returns how many batches of the pass steps have used: `steps` of the open epoch.

        Fewer than `batches`, where the feed is ahead of the steps.
        """
        return self.epoch_start + steps if self.in_epoch else self.batches


class PositionsInFlight:
    """The source's positions after the batches that are read and not yet trained on, by the number of batches."""

    def __init__(self) -> None:
        self.begin(0, None)

    def begin(self, number: int, position: SourcePosition) -> None:
        """Starts anew, with the position after `number` batches of a pass."""
        self._first = number
        self._positions: deque[Any] = deque([position])

    def add(self, position: SourcePosition) -> None:
        """Notes the position after the next batch."""
        self._positions.append(position)

    def after(self, number: int) -> Any:
        """Returns the position after `number` batches."""
        return self._positions[number - self._first]

    def forget(self, number: int) -> None:
        """Drops the positions before that after `number` batches."""
        # The last one stays: it is the position at the end of the pass.
        while self._first < number and len(self._positions) > 1:
            self._positions.popleft()
            self._first += 1


def row_count(batch: Any) -> int | None:
    """Returns how many rows a global batch has, if its arrays say so."""
    if isinstance(batch, GatherIndices):
        return len(batch.rows)
    if isinstance(batch, EvenShard):
        return batch.count
    if isinstance(batch, RaggedShard):
        return sum(batch.counts) or None
    return next((np.shape(leaf)[0] for leaf in jax.tree.leaves(batch) if np.shape(leaf)), None)


def skip(batches: Iterator[Any], count: int, rows: int | None) -> None:
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
        if number == 0 and rows is not None and (actual := row_count(batch)) is not None:
            check_same_rows(rows, actual)


def check_same_rows(saved: int, actual: int) -> None:
    """Raises `CheckpointError` unless global batches have the size that they had."""
    if saved != actual:
        raise CheckpointError(
            f"Training goes on with the global batch that it began with: {saved} examples. Received: batches of "
            f"{actual}. Use batches of {saved}, on any number of workers and devices, or start anew in another "
            "directory."
        )


def check_same(what: str, saved: JSON, actual: PyTree) -> None:
    """Raises `CheckpointError` unless the data are what they were."""
    if saved != actual:
        raise CheckpointError(
            f"The data must be those of the checkpoint: {what} was {saved!r}. Received: {actual!r}. Give the same "
            "data, or start anew in another directory."
        )
