"""Puts batches and state on the replicas' devices, and brings state back."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from lockstep._engine.step.portions import Lookup, Part, Recipe, Share
from lockstep._engine.step.replicas import AXIS, Replicas
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
    """A global batch on the devices, or a chunk of several that a step program runs one after the other.

    Attributes:
        data: The arrays. Those of a chunk have one more axis, the first: one place for each batch.
        split: How they lie there.
        counts: Of a batch that the processes put together of different numbers of rows, these numbers; the arrays are
            filled up until the step.
        recipe: Of data that are (arrays, rows): makes the batch of them, in the step program.
        places: How many places a chunk has; 0 for a single batch.
        first: The place of the first batch to run.
        steps: How many batches to run.
    """

    data: Any
    split: Split
    counts: tuple[int, ...] = ()
    recipe: Recipe | None = None
    places: int = 0
    first: int = 0
    steps: int = 1

    def piece(self, first: int, steps: int) -> Placed:
        """Returns the batches from `first` on, `steps` of them."""
        return dataclasses.replace(self, first=self.first + first, steps=steps)


def place_batch(replicas: Replicas, batch: Any) -> Placed:
    """Places a global batch: whole, this process' `Share` of it, or the `Part` that it adds.

    A batch that the replicas can divide goes out in shares. Any other is still one batch with one device's numbers:
    it goes out whole, and with at least one example per replica XLA divides the work. Data without a common first
    axis cannot be divided.
    """
    if isinstance(batch, Share):
        return Placed(_own_shares(replicas, as_arrays(batch.data), batch.count), Split.EVEN)
    if isinstance(batch, Part):
        return place_parts(replicas, as_arrays(batch.data), batch.counts)
    if isinstance(batch, Lookup):
        split = _split_of(replicas, len(batch.rows))
        return Placed((batch.arrays, _row_numbers(replicas, batch.rows, split)), split, recipe=batch.recipe)
    batch = as_arrays(batch)
    split = _split_of(replicas, _common_rows(batch))
    return Placed(_spread(replicas, batch, split), split)


def place_chunk(replicas: Replicas, batches: Sequence[Any], places: int) -> Placed:
    """Places batches that are `alike` together.

    Args:
        replicas: Where.
        batches: At most `places` of them.
        places: For how many there is room, so that few sizes have to be compiled.
    """
    first, steps = batches[0], len(batches)
    if isinstance(first, Lookup):
        split = _split_of(replicas, len(first.rows))
        rows = _row_numbers(replicas, _stacked([b.rows for b in batches], places), split, axis=1)
        return Placed((first.arrays, rows), split, recipe=first.recipe, places=places, steps=steps)
    trees = [as_arrays(b.data if isinstance(b, Share) else b) for b in batches]
    data = jax.tree.map(lambda *leaves: _stacked(leaves, places), *trees)
    if isinstance(first, Share):
        return Placed(_own_shares(replicas, data, first.count, axis=1), Split.EVEN, places=places, steps=steps)
    split = _split_of(replicas, _common_rows(trees[0]))
    return Placed(_spread(replicas, data, split, axis=1), split, places=places, steps=steps)


def alike(batch: Any) -> Hashable:
    """Returns what batches that go into one chunk have in common; `None` for one that goes alone."""
    if isinstance(batch, Part):
        return None
    if isinstance(batch, Lookup):
        return batch.recipe, tuple(map(id, batch.arrays)), len(batch.rows)
    count, data = (batch.count, batch.data) if isinstance(batch, Share) else (None, batch)
    leaves, structure = jax.tree.flatten(data)
    return count, structure, tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)


def as_share(replicas: Replicas, batch: Any) -> Any:
    """Returns a part as a share, if all processes add as many rows and their replicas can divide them."""
    if not isinstance(batch, Part) or not batch.counts or len(set(batch.counts)) > 1:
        return batch
    per_process = replicas.count // len(batch.counts)
    return batch if batch.counts[0] % per_process else Share(batch.data, sum(batch.counts))


def shapes_of(replicas: Replicas, batch: Any) -> Any:
    """Returns shapes and types of a global batch; of a part, as if all processes added as many rows."""
    if isinstance(batch, Lookup):
        return batch.shapes
    count: int | None = None
    if isinstance(batch, Share):
        count, batch = batch.count, batch.data
    elif isinstance(batch, Part):
        count, batch = batch.rows * len(replicas.runtime.tasks), batch.data

    def shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
        shape = leaf.shape if count is None or not leaf.shape else (count, *leaf.shape[1:])
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return jax.tree.map(shape_of, as_arrays(batch))


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
        return Placed(_own_shares(replicas, data, rows), Split.EVEN)
    each = -(-max(counts) // per_process)
    padded = jax.tree.map(lambda a: _filled_up(a, each * per_process), data)
    sent = _own_shares(replicas, padded, each * replicas.count)
    return Placed(sent, _split_of(replicas, rows), tuple(counts))


def cut_parts(data: Any, counts: tuple[int, ...]) -> Any:
    """Cuts out each process' rows, and puts them after each other."""

    def cut(array: jax.Array) -> jax.Array:
        each = array.shape[0] // len(counts)
        return jnp.concatenate([array[i * each : i * each + n] for i, n in enumerate(counts)])

    return jax.tree.map(lambda a: cut(a) if a.ndim else a, data)


def _split_of(replicas: Replicas, rows: int) -> Split:
    if rows and rows % replicas.count == 0:
        return Split.EVEN
    return Split.UNEVEN if rows >= replicas.count else Split.WHOLE


def _own_shares(replicas: Replicas, data: Any, count: int, axis: int = 0) -> Any:
    """Arrays of `count` rows, of which this process holds its own, equally many for each of its replicas."""

    def place(array: Any) -> jax.Array:
        if np.ndim(array) <= axis:
            return _copies(replicas, array)
        each = array.shape[axis] // len(replicas.local)
        return _divided(replicas, array, count, axis, [k * each for k in range(len(replicas.local))], each)

    return jax.tree.map(place, data)


def _spread(replicas: Replicas, data: Any, split: Split, axis: int = 0) -> Any:
    """Arrays that are equal on every process: each replica's share, or copies."""

    def place(array: Any) -> jax.Array:
        if np.ndim(array) <= axis or split is not Split.EVEN:
            return _copies(replicas, array)
        each = array.shape[axis] // replicas.count
        return _divided(replicas, array, array.shape[axis], axis, [i * each for i, _ in replicas.local], each)

    return jax.tree.map(place, data)


def _row_numbers(replicas: Replicas, rows: np.ndarray, split: Split, axis: int = 0) -> Any:
    """Which rows are looked up. One device gets these few numbers with the call: to place them would take 0.1 ms."""
    return rows if replicas.count == 1 else _spread(replicas, rows, split, axis)


def _divided(replicas: Replicas, array: Any, count: int, axis: int, starts: list[int], each: int) -> jax.Array:
    """An array with `count` rows along `axis`; each replica of this process holds those from its start on."""
    before = (slice(None),) * axis
    parts = [
        jax.device_put(array[(*before, slice(start, start + each))], device)
        for start, (_, device) in zip(starts, replicas.local, strict=True)
    ]
    shape = (*array.shape[:axis], count, *array.shape[axis + 1 :])
    return jax.make_array_from_single_device_arrays(
        shape, replicas.by_example_of_each if axis else replicas.by_example, parts
    )


def _stacked(leaves: Sequence[Any], places: int) -> np.ndarray[Any, Any]:
    """One array with a place for each of so many; those beyond the given ones are not read."""
    first = np.asarray(leaves[0])
    stack = np.zeros((places, *first.shape), first.dtype)
    for i, leaf in enumerate(leaves):
        stack[i] = leaf
    return stack


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


def fetched(replicas: Replicas, value: jax.Array) -> np.ndarray[Any, Any]:
    """Returns the whole of an array in the host's memory; all tasks call it together for one in parts."""
    return np.asarray(value if value.is_fully_addressable else local_copy(_gathering(replicas.whole)(value)))


@functools.cache
def _gathering(whole: NamedSharding) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda array: array, out_shardings=whole)


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


def _copies(replicas: Replicas, array: Any) -> jax.Array:
    if isinstance(array, jax.Array) and len(array.sharding.device_set) > 1:
        array = np.asarray(array)
    copies = [jax.device_put(array, d) for _, d in replicas.local]
    return jax.make_array_from_single_device_arrays(np.shape(array), replicas.whole, copies)
