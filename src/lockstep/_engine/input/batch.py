"""Batches between a source and the devices: their position, their description, and this worker's rows of them."""

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


def describe_arrays(data: Any, rows: Any = None) -> dict[str, str]:
    """Returns the dtype and the shape of each array by its path, with `rows` in place of the number of rows."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(data)
    return {jax.tree_util.keystr(path): _describe(leaf, rows) for path, leaf in leaves}


def _describe(leaf: Any, rows: Any) -> str:
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
