"""Batches between a source and the devices: what they look like, what a task adds to them, where they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.samples import Sample
from lockstep._engine.step.batches import EvenShard, GatherIndices, RaggedShard
from lockstep.errors import InputError


@dataclass(frozen=True)
class Marked:
    """A batch, and the position of the data after it.

    Attributes:
        batch: The batch, or what this task has of it.
        mark: The position.
        sample: A sample of what the global batch is made of, if tasks compare them.
    """

    batch: Any
    mark: Any
    sample: Sample | None = None


def sample_of(batch: Any, number: int) -> Sample | None:
    """Returns a sample of a global batch that is equal on all tasks; `None` where each has rows of its own.

    Args:
        batch: The batch.
        number: Its number in the pass: each shows other rows.
    """
    if isinstance(batch, Marked):
        return batch.sample
    return None if isinstance(batch, (GatherIndices, EvenShard, RaggedShard)) else Sample(batch, number)


def unmarked(batch: Any) -> Any:
    """Returns a batch without the position after it."""
    return batch.batch if isinstance(batch, Marked) else batch


def signature(batch: Any) -> str:
    """Describes each array of a batch, for example "[0]: float32(64, 28, 28), [1]: int64(64,)".

    It is the same on all tasks for what they share; for parts it leaves out the number of rows.
    """
    batch = unmarked(batch)
    first: Any = None
    data = batch.shapes if isinstance(batch, GatherIndices) else batch
    if isinstance(batch, EvenShard):
        first, data = batch.count, batch.data
    elif isinstance(batch, RaggedShard):
        first, data = "rows", batch.data
    return ", ".join(f"{path}: {array}" for path, array in described(data, first).items())


def described(data: Any, first: Any = None) -> dict[str, str]:
    """Returns the dtype and the shape of each array by its path, with `first` in place of the number of rows."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(data)
    return {jax.tree_util.keystr(path): _array(leaf, first) for path, leaf in leaves}


def rows_to_add(batch: Any) -> int | None:
    """Returns how many rows a part adds, or `None` for what is no part."""
    batch = unmarked(batch)
    return batch.rows if isinstance(batch, RaggedShard) else None


def with_counts(batch: Any, counts: Sequence[int]) -> Any:
    """Returns a part that knows what the others add."""
    if isinstance(batch, Marked):
        return replace(batch, batch=with_counts(batch.batch, counts))
    return RaggedShard(batch.data, tuple(counts))


def nbytes(batch: Any) -> int:
    """About how many bytes of it this task holds."""
    found = unmarked(batch)
    if isinstance(found, (GatherIndices, EvenShard, RaggedShard)):
        return found.nbytes
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(found))


def _array(leaf: Any, first: Any) -> str:
    shape = leaf.shape if hasattr(leaf, "shape") else np.shape(leaf)
    if first is not None and shape:
        shape = (first, *shape[1:])
    shown = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    return f"{_dtype(leaf)}({shown})"


def _dtype(leaf: Any) -> Any:
    """The dtype that it will have on the devices."""
    found = getattr(leaf, "dtype", None)
    if found is None:
        return type(leaf).__name__
    return found if found.kind == "O" else jax.dtypes.canonicalize_dtype(found)


def not_empty(batch: Any) -> Any:
    """Returns a batch, or raises `InputError` if there is none."""
    if batch is None:
        raise no_batch()
    return batch


def no_batch() -> InputError:
    """The error for data that is empty."""
    return InputError("The data must hold at least one batch. Received: no batch at all. Check its source.")
