"""Data that stays on the devices: a batch is gathered there, and its map functions run there, as a part of the step.

Arrays in memory (a program's own, the source's, or a complete cache's) are put on every device once, if they take a
part of its memory at most. Then only the numbers of a batch's rows travel.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from lockstep._engine.step.batches import BatchFn, GatherIndices
from lockstep._engine.step.replicas import Replicas
from lockstep.data.internal import (
    ArrayStore,
    Block,
    CachedElements,
    MappedStore,
    Ragged,
    StackedStore,
    Store,
    VectorizedFunction,
    ZippedStore,
    join_blocks,
)

# The part of a device's memory that data may take; on the CPU it is also the program's.
_FRACTION = 4
_FRACTION_OF_HOST = 8
_BYTES_TOGETHER = 1 << 30
# What costs less to compute again than to keep: at most so many operations, which touch each number once.
_FEW = 24
_LIGHT = frozenset(
    (
        *(
            "abs",
            "add",
            "and",
            "broadcast_in_dim",
            "ceil",
            "clamp",
            "concatenate",
            "convert_element_type",
            "copy",
            "div",
        ),
        *("eq", "floor", "ge", "gt", "integer_pow", "iota", "le", "lt", "max", "min", "mul", "ne", "neg", "not", "or"),
        *("pad", "rem", "reshape", "rev", "round", "select_n", "sign", "slice", "squeeze", "stop_gradient", "sub"),
        "transpose",
    )
)


@dataclass(frozen=True)
class _Found:
    """Elements as rows of arrays.

    Attributes:
        key: Equal for what is computed alike.
        compute: Pure function of the arrays and int32 (k,) rows that returns columns.
        arrays: The arrays, on the host.
        rows: Which rows.
    """

    key: Hashable
    compute: Callable[[tuple[Any, ...], Any], Any]
    arrays: tuple[Any, ...]
    rows: Any


class Residents:
    """The arrays that are on the devices.

    Args:
        replicas: The devices.
        limit: How many bytes they may take on each; `None` for what suits the device.
    """

    def __init__(self, replicas: Replicas, limit: int | None = None) -> None:
        self._replicas = replicas
        self._left = _limit(replicas) if limit is None else limit
        self._placed: dict[int, tuple[Any, jax.Array]] = {}
        self._known: dict[Any, tuple[BatchFn, Any]] = {}

    def lookups(self, batches: Sequence[Block], finish: Callable[[Any], Any]) -> list[GatherIndices] | None:
        """Returns batches of elements of one store as their rows on the devices, or `None` if they are not there."""
        found = _found(join_blocks(batches)) if self._left or self._placed else None
        if found is None:
            return None
        compute = found.compute
        recipe = BatchFn((found.key, _key_of(finish)), lambda arrays, rows: finish(compute(arrays, rows)))
        rows = np.asarray(found.rows, np.int32)
        ends = itertools.accumulate(map(len, batches))
        return self.rows_of(found.arrays, [rows[e - len(b) : e] for b, e in zip(batches, ends, strict=True)], recipe)

    def rows_of(self, arrays: tuple[Any, ...], batches: Sequence[Any], recipe: BatchFn) -> list[GatherIndices] | None:
        """Returns batches of rows of arrays, or `None` if the arrays have no room on the devices."""
        if not self.hold(arrays):
            return None
        placed = tuple(self._placed[id(a)][1] for a in arrays)
        known = {count: self._shapes(arrays, placed, count, recipe) for count in set(map(len, batches))}
        return [GatherIndices(known[len(rows)][0], placed, rows, known[len(rows)][1]) for rows in batches]

    def _shapes(self, arrays: Any, placed: Any, count: int, recipe: BatchFn) -> tuple[BatchFn, Any]:
        """What a batch of so many rows looks like, and the recipe that was the first to make one."""
        key = (recipe, tuple(map(id, arrays)), count)
        if key not in self._known:
            self._known[key] = (recipe, jax.eval_shape(recipe, placed, jax.ShapeDtypeStruct((count,), np.int32)))
        return self._known[key]

    def hold(self, arrays: tuple[Any, ...]) -> bool:
        """Puts arrays on every device, if they fit; returns whether they are there."""
        missing = {id(a): a for a in arrays if id(a) not in self._placed}
        needed = sum(a.nbytes for a in missing.values())
        if needed > self._left:
            return False
        for number, array in missing.items():
            narrow = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
            copies = [jax.device_put(narrow, device) for _, device in self._replicas.local]
            placed = jax.make_array_from_single_device_arrays(narrow.shape, self._replicas.whole, copies)
            self._placed[number] = (array, placed)
        self._left -= needed
        return True


def _found(block: Block) -> _Found | None:
    store = block.store
    if isinstance(store, ArrayStore):
        return _in_columns(store.columns, block.rows)
    if isinstance(store, CachedElements):
        return _in_cache(store, block.rows)
    if isinstance(store, MappedStore):
        return _in_map(store, block.rows)
    return _in_zip(store, block.rows) if isinstance(store, ZippedStore) else None


def _in_columns(columns: Any, rows: Any) -> _Found | None:
    leaves, structure = jax.tree.flatten(columns)
    if any(isinstance(leaf, Ragged) or leaf.dtype == object or len(leaf) >= 2**31 for leaf in leaves):
        return None
    return _Found(("arrays", structure), partial(taken, structure), tuple(leaves), rows)


def taken(structure: Any, arrays: tuple[Any, ...], rows: Any) -> Any:
    """Returns rows of arrays, in a structure; a part of a traced function."""
    return structure.unflatten([a.take(rows, axis=0, mode="clip") for a in arrays])


def _in_cache(store: CachedElements, rows: Any) -> _Found | None:
    """What is kept; or, if that can be had again for next to nothing, what it is made of."""
    columns = store.columns
    if columns is not None:
        return _in_columns(columns, rows)
    block = store.origin(rows)
    return None if block is None or not _is_light(block.store) else _found(block)


def _is_light(store: Store) -> bool:
    if isinstance(store, MappedStore):
        many = _part_of_step(store)
        if many is None or len(many.traced.primitives) > _FEW or not _LIGHT.issuperset(many.traced.primitives):
            return False
        return _is_light(store.upstream)
    if isinstance(store, ZippedStore):
        return all(map(_is_light, store.stores))
    return isinstance(store, ArrayStore)


def _part_of_step(store: MappedStore) -> VectorizedFunction | None:
    """The map function, if it can run on the devices; not if it reads variables, or may have to raise an error."""
    many = store.program.vectorized_function if store.program.is_vectorized else None
    return many if many is not None and many.is_pure else None


def _in_map(store: MappedStore, rows: Any) -> _Found | None:
    many = _part_of_step(store)
    upstream = None if many is None else _found(Block(store.upstream, rows))
    if many is None or upstream is None:
        return None
    compute = upstream.compute

    def mapped(arrays: tuple[Any, ...], rows: Any) -> Any:
        return many.inline(compute(arrays, rows))

    return _Found(("map", many.traced.identity, upstream.key), mapped, upstream.arrays, upstream.rows)


def _in_zip(store: ZippedStore, rows: Any) -> _Found | None:
    parts = [found for s in store.stores if (found := _found(Block(s, rows))) is not None]
    if len(parts) < len(store.stores) or any(part.rows is not rows for part in parts):
        return None
    cuts = np.cumsum([0, *(len(p.arrays) for p in parts)]).tolist()
    computes, structure = [p.compute for p in parts], store.structure

    def zipped(arrays: tuple[Any, ...], rows: Any) -> Any:
        pieces = [c(arrays[a:b], rows) for c, a, b in zip(computes, cuts[:-1], cuts[1:], strict=True)]
        return jax.tree.unflatten(structure, pieces)

    key = ("zip", structure, tuple((p.key, len(p.arrays)) for p in parts))
    return _Found(key, zipped, tuple(a for p in parts for a in p.arrays), rows)


def _key_of(function: Any) -> Hashable:
    """Equal for functions that do the same: those made by `partial` are new each time."""
    if isinstance(function, partial):
        return function.func, function.args, tuple(sorted(function.keywords.items()))
    return function


def batches_of(block: Block) -> list[Block] | None:
    """Returns the elements of each batch, or `None` if they are put together in another way."""
    store = block.store
    if not isinstance(store, StackedStore) or store.padding is not None:
        return None
    return [store.batch(int(row)) for row in block.rows]


def _limit(replicas: Replicas) -> int:
    device = replicas.local[0][1]
    if device.platform == "cpu":
        # All tasks must place the same data, because a step that looks it up is another program.
        memory = _host_memory() // _FRACTION_OF_HOST if replicas.runtime.is_alone else _BYTES_TOGETHER
        return memory // len(replicas.local)
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", 0)) // _FRACTION


def _host_memory() -> int:
    """Bytes of memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
