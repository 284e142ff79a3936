"""The device cache: data that stays on the devices, where the step gathers a batch and applies its map functions.

Arrays in memory (a program's own, the source's, or a complete cache's) are put on every device once, if they take a
part of its memory at most. Then only the row indices of a batch travel.
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
from lockstep._types import ArrayLike, PyTree, PyTreeDef
from lockstep.data.internal import (
    ArrayStore,
    Block,
    CachedElements,
    MappedStore,
    Ragged,
    Store,
    VectorizedFunction,
    ZippedStore,
    join_blocks,
)

# Data may take this fraction of a device's memory; less on the CPU, where it is also the program's.
_FRACTION = 4
_FRACTION_OF_HOST = 8
# Several processes share a host, and must come to the same limit.
_BYTES_OF_SEVERAL = 1 << 30
# Computing at most so many of these operations, which touch each number once, costs less than keeping the result.
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
class _Rows:
    """Elements as rows of arrays.

    Attributes:
        key: Equal for equal computations.
        compute: Pure function of the arrays and int32 (k,) row indices that returns columns.
        arrays: The arrays, on the host.
        rows: The row indices.
    """

    key: Hashable
    compute: Callable[[tuple[Any, ...], Any], Any]
    arrays: tuple[Any, ...]
    rows: Any


class DeviceCache:
    """The arrays on the devices.

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
        all_rows = _rows_of(join_blocks(batches)) if self._left or self._placed else None
        if all_rows is None:
            return None
        compute = all_rows.compute
        # Functions made by `partial` are new each time.
        key: Hashable = finish
        if isinstance(finish, partial):
            key = finish.func, finish.args, tuple(sorted(finish.keywords.items()))
        recipe = BatchFn((all_rows.key, key), lambda arrays, rows: finish(compute(arrays, rows)))
        rows = np.asarray(all_rows.rows, np.int32)
        ends = itertools.accumulate(map(len, batches))
        return self.rows_of(all_rows.arrays, [rows[e - len(b) : e] for b, e in zip(batches, ends, strict=True)], recipe)

    def rows_of(self, arrays: tuple[Any, ...], batches: Sequence[Any], recipe: BatchFn) -> list[GatherIndices] | None:
        """Returns batches of rows of arrays, or `None` if the arrays have no room on the devices."""
        if not self.hold(arrays):
            return None
        placed = tuple(self._placed[id(a)][1] for a in arrays)
        ids = tuple(map(id, arrays))
        lookups: list[GatherIndices] = []
        for rows in batches:
            # The shapes of a batch of so many rows, and the recipe that was the first to make one: a program that was
            # compiled with it serves for equal ones.
            key = (recipe, ids, len(rows))
            if key not in self._known:
                shapes = jax.eval_shape(recipe, placed, jax.ShapeDtypeStruct((len(rows),), np.int32))
                self._known[key] = (recipe, shapes)
            first, shapes = self._known[key]
            lookups.append(GatherIndices(first, placed, rows, shapes))
        return lookups

    def hold(self, arrays: tuple[Any, ...]) -> bool:
        """Puts arrays on every device, if they fit; returns whether they are there."""
        missing = {id(a): a for a in arrays if id(a) not in self._placed}
        needed = sum(a.nbytes for a in missing.values())
        # All or none: a batch is looked up in arrays that are all there.
        if needed > self._left:
            return False
        for number, array in missing.items():
            # As the host's batches are: 64-bit values take 32 bits on the devices, unless jax_enable_x64 is set.
            narrow = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
            copies = [jax.device_put(narrow, device) for _, device in self._replicas.local]
            placed = jax.make_array_from_single_device_arrays(narrow.shape, self._replicas.whole, copies)
            # With the array: while it lives, no other one gets its id.
            self._placed[number] = (array, placed)
        self._left -= needed
        return True


def _rows_of(block: Block) -> _Rows | None:
    """Returns the elements of a block as rows of arrays, or `None` if they are not that."""
    store = block.store
    if isinstance(store, ArrayStore):
        return _in_columns(store.columns, block.rows)
    if isinstance(store, CachedElements):
        return _in_cache(store, block.rows)
    if isinstance(store, MappedStore):
        return _in_map(store, block.rows)
    return _in_zip(store, block.rows) if isinstance(store, ZippedStore) else None


def _in_columns(columns: PyTree, rows: ArrayLike) -> _Rows | None:
    leaves, structure = jax.tree.flatten(columns)
    # Text stays on the host, and row indices are int32.
    if any(isinstance(leaf, Ragged) or leaf.dtype == object or len(leaf) >= 2**31 for leaf in leaves):
        return None
    return _Rows(("arrays", structure), partial(take_rows, structure), tuple(leaves), rows)


def take_rows(structure: PyTreeDef, arrays: tuple[Any, ...], rows: ArrayLike) -> Any:
    """Returns rows of arrays, in a structure; traced as part of the step."""
    # Rows are known to be there: "clip" spares XLA the check, and the fill value, of jax's default mode.
    return structure.unflatten([a.take(rows, axis=0, mode="clip") for a in arrays])


def _in_cache(store: CachedElements, rows: ArrayLike) -> _Rows | None:
    """Returns rows of a complete cache; or, if the elements cost next to nothing, of their origin."""
    columns = store.columns
    if columns is not None:
        return _in_columns(columns, rows)
    block = store.origin(rows)
    return None if block is None or not _is_light(block.store) else _rows_of(block)


def _is_light(store: Store) -> bool:
    if isinstance(store, MappedStore):
        many = _pure_function(store)
        if many is None or len(many.traced.primitives) > _FEW or not _LIGHT.issuperset(many.traced.primitives):
            return False
        return _is_light(store.upstream)
    if isinstance(store, ZippedStore):
        return all(map(_is_light, store.stores))
    return isinstance(store, ArrayStore)


def _pure_function(store: MappedStore) -> VectorizedFunction | None:
    """Returns the map function, if the step can run it; not if it reads variables, or may have to raise an error."""
    many = store.program.vectorized_function if store.program.is_vectorized else None
    return many if many is not None and many.is_pure else None


def _in_map(store: MappedStore, rows: ArrayLike) -> _Rows | None:
    many = _pure_function(store)
    upstream = None if many is None else _rows_of(Block(store.upstream, rows))
    if many is None or upstream is None:
        return None
    compute = upstream.compute

    def mapped(arrays: tuple[Any, ...], rows: ArrayLike) -> Any:
        return many.inline(compute(arrays, rows))

    return _Rows(("map", many.traced.identity, upstream.key), mapped, upstream.arrays, upstream.rows)


def _in_zip(store: ZippedStore, rows: ArrayLike) -> _Rows | None:
    parts = [part for s in store.stores if (part := _rows_of(Block(s, rows))) is not None]
    if len(parts) < len(store.stores) or any(part.rows is not rows for part in parts):
        return None
    cuts = np.cumsum([0, *(len(p.arrays) for p in parts)]).tolist()
    computes, structure = [p.compute for p in parts], store.structure

    def zipped(arrays: tuple[Any, ...], rows: ArrayLike) -> Any:
        pieces = [c(arrays[a:b], rows) for c, a, b in zip(computes, cuts[:-1], cuts[1:], strict=True)]
        return jax.tree.unflatten(structure, pieces)

    key = ("zip", structure, tuple((p.key, len(p.arrays)) for p in parts))
    return _Rows(key, zipped, tuple(a for p in parts for a in p.arrays), rows)


def _limit(replicas: Replicas) -> int:
    device = replicas.local[0][1]
    if device.platform == "cpu":
        # All workers must place the same data, because a step that looks it up is another program.
        memory = _BYTES_OF_SEVERAL
        if replicas.runtime.is_alone:
            try:
                memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _FRACTION_OF_HOST
            except (AttributeError, ValueError, OSError):  # The system does not tell.
                memory = 0
        return memory // len(replicas.local)
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", 0)) // _FRACTION
