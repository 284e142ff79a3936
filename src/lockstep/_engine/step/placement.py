"""Placement: puts batches and state on the replicas' devices, and brings state back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from lockstep._engine.step.batches import (
    DeviceBatch,
    EvenShard,
    GatherIndices,
    RaggedShard,
    Split,
    common_rows,
    to_arrays,
)
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._types import Array, ArrayLike, Batch


def place_batch(replicas: Replicas, batch: Any) -> DeviceBatch:
    """Places a global batch: whole, this process's shard of it, or indices into arrays that are there.

    A batch that the replicas can divide goes out in shards. Any other is still one batch with one device's numbers:
    it goes out whole, and with at least one example per replica XLA divides the work. Data without a common first
    axis cannot be divided.
    """
    if isinstance(batch, EvenShard):
        return DeviceBatch(_place_own(replicas, to_arrays(batch.data), batch.count), Split.EVEN)
    if isinstance(batch, RaggedShard):
        return place_ragged(replicas, to_arrays(batch.data), batch.counts)
    if isinstance(batch, GatherIndices):
        split = _split_of(replicas, len(batch.rows))
        data = batch.arrays, _place_indices(replicas, batch.rows, split)
        return DeviceBatch(data, split, batch_fn=batch.batch_fn)
    batch = to_arrays(batch)
    split = _split_of(replicas, common_rows(batch))
    return DeviceBatch(_place_common(replicas, batch, split), split)


def place_chunk(replicas: Replicas, batches: Sequence[Any], capacity: int) -> DeviceBatch:
    """Places batches with the same `chunk_key` together."""
    first, steps = batches[0], len(batches)
    if isinstance(first, GatherIndices):
        split = _split_of(replicas, len(first.rows))
        rows = _place_indices(replicas, _stack([b.rows for b in batches], capacity), split, axis=1)
        return DeviceBatch((first.arrays, rows), split, batch_fn=first.batch_fn, capacity=capacity, steps=steps)
    trees = [to_arrays(b.data if isinstance(b, EvenShard) else b) for b in batches]
    data = jax.tree.map(lambda *leaves: _stack(leaves, capacity), *trees)
    if isinstance(first, EvenShard):
        data, split = _place_own(replicas, data, first.count, axis=1), Split.EVEN
    else:
        split = _split_of(replicas, common_rows(trees[0]))
        data = _place_common(replicas, data, split, axis=1)
    return DeviceBatch(data, split, capacity=capacity, steps=steps)


def place_ragged(replicas: Replicas, data: Batch, counts: Sequence[int]) -> DeviceBatch:
    """Places the rows that each process adds, as one batch in the order of the processes.

    Processes that all add the same number of rows, a multiple of their replicas', keep them. Otherwise each pads its
    rows to the same number for the way; the step program cuts that off again (`concat_ragged`).
    """
    rows = sum(counts)
    per_process = replicas.count // len(counts)
    if len(set(counts)) == 1 and counts[0] % per_process == 0:
        return DeviceBatch(_place_own(replicas, data, rows), Split.EVEN)
    # It is the step that cuts, not a program of its own here: a feed's thread may run ahead of the steps, and all
    # processes have to exchange data in the same order.
    each = -(-max(counts) // per_process)

    def pad(array: Array) -> np.ndarray[Any, Any]:
        array = np.asarray(array)
        return np.concatenate([array, np.zeros((each * per_process - len(array), *array.shape[1:]), array.dtype)])

    sent = _place_own(replicas, jax.tree.map(pad, data), each * replicas.count)
    return DeviceBatch(sent, _split_of(replicas, rows), tuple(counts))


def _split_of(replicas: Replicas, rows: int) -> Split:
    if rows and rows % replicas.count == 0:
        return Split.EVEN
    return Split.UNEVEN if rows >= replicas.count else Split.WHOLE


def _place_own(replicas: Replicas, data: Batch, count: int, axis: int = 0) -> Batch:
    """Places arrays of `count` rows, of which this process holds its own, equally many for each of its replicas."""

    def place(array: Array) -> jax.Array:
        if np.ndim(array) <= axis:
            return replicate(replicas, array)
        each = array.shape[axis] // len(replicas.local)
        return _shard(replicas, array, count, axis, [k * each for k in range(len(replicas.local))], each)

    return jax.tree.map(place, data)


def _place_common(replicas: Replicas, data: Batch, split: Split, axis: int = 0) -> Batch:
    """Places arrays that are equal on every process: each replica's shard, or copies."""

    def place(array: Array) -> jax.Array:
        if np.ndim(array) <= axis or split is not Split.EVEN:
            return replicate(replicas, array)
        each = array.shape[axis] // replicas.count
        return _shard(replicas, array, array.shape[axis], axis, [i * each for i, _ in replicas.local], each)

    return jax.tree.map(place, data)


def _place_indices(replicas: Replicas, rows: np.ndarray, split: Split, axis: int = 0) -> Array:
    # One device gets these few numbers with the call: to place them would take 0.1 ms.
    return rows if replicas.count == 1 else _place_common(replicas, rows, split, axis)


def _shard(replicas: Replicas, array: Array, count: int, axis: int, starts: list[int], each: int) -> jax.Array:
    """Places an array with `count` rows along `axis`; each replica of this process holds those from its start on."""
    before = (slice(None),) * axis
    # By device: given a sharding with devices of other processes, jax.device_put wants the whole array on each of them,
    # and compares it between them.
    shards = [
        jax.device_put(array[(*before, slice(start, start + each))], device)
        for start, (_, device) in zip(starts, replicas.local, strict=True)
    ]
    shape = (*array.shape[:axis], count, *array.shape[axis + 1 :])
    sharding = replicas.by_example_of_each if axis else replicas.by_example
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def _stack(leaves: Sequence[Any], capacity: int) -> np.ndarray[Any, Any]:
    """Returns one array with so many slots; those beyond the given leaves are zeros, which no step reads."""
    first = np.asarray(leaves[0])
    stack = np.zeros((capacity, *first.shape), first.dtype)
    for i, leaf in enumerate(leaves):
        stack[i] = leaf
    return stack


def replicate(replicas: Replicas, value: ArrayLike) -> jax.Array:
    """Places one array, equal on every process, as a full copy on every device."""
    if isinstance(value, jax.Array) and len(value.sharding.device_set) > 1:
        # jax.device_put takes no array that lies on other processes' devices, too; numpy reads the copy that is here.
        value = np.asarray(value)
    copies = [jax.device_put(value, device) for _, device in replicas.local]
    return jax.make_array_from_single_device_arrays(np.shape(value), replicas.whole, copies)


def local_copy(value: jax.Array) -> jax.Array:
    """Returns this process's copy of an array that every device holds whole, without moving it."""
    return value.addressable_data(0)


def gather_to_host(replicas: Replicas, value: jax.Array) -> np.ndarray[Any, Any]:
    """Returns the whole of an array in the host's memory; all tasks call it together for one in shards."""
    return np.asarray(value if value.is_fully_addressable else local_copy(_all_gather(replicas.whole)(value)))


@functools.cache
def _all_gather(whole: NamedSharding) -> Callable[[jax.Array], jax.Array]:
    # Kept: jax.jit knows programs by their function, and would compile anew for each new lambda.
    return jax.jit(lambda array: array, out_shardings=whole)


def broadcast_from_chief(replicas: Replicas, values: list[jax.Array]) -> list[jax.Array]:
    """Returns the first replica's content of arrays that should be, but may not be, equal everywhere."""
    if not values:
        return values

    def pick(arrays: list[jax.Array]) -> list[jax.Array]:
        is_first = lax.axis_index(AXIS) == 0
        return [pick_one(array, is_first) for array in arrays]

    def pick_one(array: jax.Array, is_first: jax.Array) -> jax.Array:
        # A sum of one value and zeros: XLA has no broadcast between processes. There is no sum of booleans.
        number = array.astype(jnp.uint8) if array.dtype == bool else array
        return lax.psum(jnp.where(is_first, number, jnp.zeros_like(number)), AXIS).astype(array.dtype)

    spec = PartitionSpec()
    run = jax.shard_map(pick, mesh=replicas.mesh, in_specs=(spec,), out_specs=spec, check_vma=False)
    return jax.jit(run, out_shardings=replicas.whole)(values)


class ReplicaRows:
    """Arrays of which each replica has its own: brings them to the replicas and back.

    On the devices they have a first axis of replicas, divided over them.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        count = replicas.count
        self._repeat = jax.jit(
            lambda arrays: [jnp.broadcast_to(a[None], (count, *a.shape)) for a in arrays],
            out_shardings=replicas.by_example,
        )
        self._row = jax.jit(lambda rows: rows[0])

    def has(self, array: Array) -> bool:
        """Returns whether an array is one of them."""
        sharding = getattr(array, "sharding", None)
        return isinstance(sharding, NamedSharding) and sharding.spec == self._replicas.by_example.spec

    def repeat(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Gives each replica its copy of arrays that all have whole; nothing travels."""
        return self._repeat(list(arrays)) if arrays else []

    def local_row(self, array: jax.Array) -> jax.Array:
        """Returns the row of the first replica of this process, as an array of this process."""
        return self._row(array.addressable_data(0))

    def place(self, value: np.ndarray[Any, Any]) -> jax.Array:
        """Puts an array, equal on every process, with a first axis of replicas on them."""
        rows = [jax.device_put(value[i : i + 1], device) for i, device in self._replicas.local]
        return jax.make_array_from_single_device_arrays(value.shape, self._replicas.by_example, rows)

    def broadcast_from_chief(self, topic: str, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Returns the chief's arrays; all tasks call it together, the others with any."""
        runtime = self._replicas.runtime
        kinds = [[list(v.shape), v.dtype.name] for v in arrays]
        shared = runtime.all_gather_object(topic, kinds if runtime.is_chief else None)[0]
        if runtime.is_alone:
            return list(arrays)
        mine = arrays if runtime.is_chief else [np.zeros(shape, dtype) for shape, dtype in shared]
        placed = broadcast_from_chief(self._replicas, [replicate(self._replicas, v) for v in mine])
        return [np.asarray(local_copy(v)) for v in placed]
