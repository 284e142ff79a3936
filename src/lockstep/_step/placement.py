"""Puts batches and state on the replicas' devices, and brings state back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from lockstep._step.portions import Lookup, Part, Share
from lockstep._step.replicas import AXIS, Replicas
from lockstep.errors import InputError

# Boolean, signed and unsigned integer, float, complex. bfloat16 and its kind are of kind "V".
_NUMBERS = "biufc"


class Split(Enum):
    """How a global batch lies on the replicas."""

    EVEN = "each replica holds its share"
    UNEVEN = "each replica holds all; XLA divides the work, with padding that it masks"
    WHOLE = "each replica holds all and computes all"


@dataclass(frozen=True)
class Placed:
    """A global batch on the devices.

    Attributes:
        data: The arrays.
        split: How they lie there.
        counts: Of a batch that the processes put together of different numbers of rows, these numbers; the arrays are
            filled up until the step.
    """

    data: Any
    split: Split
    counts: tuple[int, ...] = ()


def place_batch(replicas: Replicas, batch: Any) -> Placed:
    """Places a global batch: whole, this process' `Share` of it, or the `Part` that it adds.

    A batch that the replicas can divide goes out in shares. Any other is still one batch with one device's numbers:
    it goes out whole, and with at least one example per replica XLA divides the work. Data without a common first
    axis cannot be divided.
    """
    if isinstance(batch, Share):
        data = as_arrays(batch.data)
        return Placed(jax.tree.map(lambda a: _own_share(replicas, a, batch.count), data), Split.EVEN)
    if isinstance(batch, Part):
        return place_parts(replicas, as_arrays(batch.data), batch.counts)
    if isinstance(batch, Lookup):
        rows = len(batch.rows)
        split = Split.EVEN if rows % replicas.count == 0 else _split_of(replicas, rows)
        return Placed(batch.gather(batch.arrays, place_whole(replicas, batch.rows)), split)
    batch = as_arrays(batch)
    rows = _common_rows(batch)
    if rows and rows % replicas.count == 0:
        return Placed(jax.tree.map(lambda a: _shares(replicas, a), batch), Split.EVEN)
    return Placed(jax.tree.map(lambda a: _copies(replicas, a), batch), _split_of(replicas, rows))


def own_rows(replicas: Replicas, count: int) -> slice | None:
    """Returns this process' rows of a batch that the replicas can divide, or `None` if it needs all of them."""
    if count % replicas.count or not count or len(replicas.local) == replicas.count:
        return None
    share = count // replicas.count
    mine = [i for i, _ in replicas.local]
    return slice(mine[0] * share, (mine[-1] + 1) * share)


def place_parts(replicas: Replicas, data: Any, counts: Sequence[int]) -> Placed:
    """Places the rows that each process adds, as one batch in the order of the processes.

    Processes that all add the same number of rows, a multiple of their replicas', keep them. Otherwise each fills its
    rows up to the same number for the way; the step program cuts that off again (`cut_parts`). It must be the step that
    does, because all processes have to exchange data in the same order.
    """
    rows = sum(counts)
    per_process = replicas.count // len(counts)
    if len(set(counts)) == 1 and counts[0] % per_process == 0:
        return Placed(jax.tree.map(lambda a: _own_share(replicas, a, rows), data), Split.EVEN)
    each = -(-max(counts) // per_process)
    padded = jax.tree.map(lambda a: _filled_up(a, each * per_process), data)
    sent = jax.tree.map(lambda a: _own_share(replicas, a, each * replicas.count), padded)
    split = Split.EVEN if rows % replicas.count == 0 else _split_of(replicas, rows)
    return Placed(sent, split, tuple(counts))


def cut_parts(data: Any, counts: tuple[int, ...]) -> Any:
    """Cuts out each process' rows, and puts them after each other."""

    def cut(array: jax.Array) -> jax.Array:
        each = array.shape[0] // len(counts)
        return jnp.concatenate([array[i * each : i * each + n] for i, n in enumerate(counts)])

    return jax.tree.map(lambda a: cut(a) if a.ndim else a, data)


def _split_of(replicas: Replicas, rows: int) -> Split:
    return Split.UNEVEN if rows >= replicas.count else Split.WHOLE


def _own_share(replicas: Replicas, rows: Any, count: int) -> jax.Array:
    """An array of `count` rows, of which this process holds its own, equally many for each of its replicas."""
    if np.ndim(rows) == 0:
        return _copies(replicas, rows)
    each = len(rows) // len(replicas.local)
    parts = [jax.device_put(rows[k * each : (k + 1) * each], d) for k, (_, d) in enumerate(replicas.local)]
    return jax.make_array_from_single_device_arrays((count, *rows.shape[1:]), replicas.by_example, parts)


def _filled_up(rows: Any, count: int) -> Any:
    rows = np.asarray(rows)
    return np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]), rows.dtype)])


def as_arrays(batch: Any) -> Any:
    """Returns a batch with every leaf an array of numbers.

    Raises:
        InputError: If a leaf is anything else, such as text.
    """
    return jax.tree_util.tree_map_with_path(_as_array, batch)


def place_whole(replicas: Replicas, value: Any) -> jax.Array:
    """Places one array, equal on every process, as a full copy on every device."""
    return _copies(replicas, value)


def local_copy(value: jax.Array) -> jax.Array:
    """Returns this process' copy of an array that every device holds whole, without moving it."""
    return value.addressable_data(0)


def from_chief(replicas: Replicas, values: list[jax.Array]) -> list[jax.Array]:
    """Returns the first replica's content of arrays that should be, but may not be, equal everywhere."""
    return _broadcast(replicas, values) if values else values


def _broadcast(replicas: Replicas, values: list[jax.Array]) -> list[jax.Array]:
    def pick(tree: list[jax.Array]) -> list[jax.Array]:
        first = lax.axis_index(AXIS) == 0
        return [_sum_one(v, first) for v in tree]

    spec = PartitionSpec()
    run = jax.shard_map(pick, mesh=replicas.mesh, in_specs=(spec,), out_specs=spec, check_vma=False)
    return jax.jit(run, out_shardings=replicas.whole)(values)


def _sum_one(value: jax.Array, mine: jax.Array) -> jax.Array:
    number = value.astype(jnp.uint8) if value.dtype == bool else value
    return lax.psum(jnp.where(mine, number, jnp.zeros_like(number)), AXIS).astype(value.dtype)


def _as_array(path: Any, leaf: Any) -> Any:
    """Arrays of jax stay where they are; everything else that numpy understands becomes an array."""
    if isinstance(leaf, jax.Array):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in _NUMBERS and not jnp.issubdtype(array.dtype, np.number):
        raise InputError(
            f"Batches must hold numbers. Received: {array.dtype} at {jax.tree_util.keystr(path)}. Turn text into "
            "numbers before it reaches the model, for example with keras.layers.StringLookup or TextVectorization in "
            "the input pipeline."
        )
    # 64-bit numbers become 32-bit ones here, unless JAX is told to keep them; said aloud on each batch it is noise.
    narrow = jax.dtypes.canonicalize_dtype(array.dtype)
    if narrow != array.dtype and array.dtype.kind in "iu":
        _demand_fit(array, narrow, path)
    return array.astype(narrow, copy=False)


def _demand_fit(array: np.ndarray[Any, Any], dtype: Any, path: Any) -> None:
    """Raises `InputError` if integers would come out as others."""
    limits = np.iinfo(dtype)
    if array.size and not (limits.min <= array.min() and array.max() <= limits.max):
        raise InputError(
            f"JAX computes with 32-bit integers, and values must fit into them. Received: {array.min()} to "
            f"{array.max()} at {jax.tree_util.keystr(path)}. Hash such numbers in the input pipeline, or set "
            'jax.config.update("jax_enable_x64", True) right after the imports.'
        )


def _common_rows(batch: Any) -> int:
    """The number of examples, or 0 for a batch without a first axis common to all its arrays."""
    arrays = [a for a in jax.tree.leaves(batch) if np.ndim(a) > 0]
    lengths = {a.shape[0] for a in arrays}
    return lengths.pop() if len(lengths) == 1 else 0


def _shares(replicas: Replicas, array: Any) -> jax.Array:
    if np.ndim(array) == 0:
        return _copies(replicas, array)
    share = array.shape[0] // replicas.count
    parts = [jax.device_put(array[i * share : (i + 1) * share], d) for i, d in replicas.local]
    return jax.make_array_from_single_device_arrays(array.shape, replicas.by_example, parts)


def _copies(replicas: Replicas, array: Any) -> jax.Array:
    if isinstance(array, jax.Array) and len(array.sharding.device_set) > 1:
        array = np.asarray(array)
    copies = [jax.device_put(array, d) for _, d in replicas.local]
    return jax.make_array_from_single_device_arrays(np.shape(array), replicas.whole, copies)
