"""Data that stays on the devices: a batch is gathered there, and its map functions run there.

Arrays in memory (the source's own, or a complete cache's) are put on every device once. Then only the numbers of a
batch's rows travel. It is done on accelerators, for arrays that take a part of the device's memory at most; on the CPU
the host's memory is the device's, and there is nothing to save.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lockstep._step.portions import Lookup
from lockstep._step.replicas import Replicas
from lockstep.data._blocks import ArrayStore, Block, Store, ZippedStore
from lockstep.data._columns import Ragged
from lockstep.data._mapped import MappedStore
from lockstep.data._transforms.batch import StackedStore
from lockstep.data._transforms.cache import Kept

# The part of a device's memory that data may take.
_FRACTION = 4


@dataclass(frozen=True)
class _Recipe:
    """How the elements of a store come from arrays.

    Attributes:
        key: Tells it from others, as long as `holds` exist.
        arrays: The arrays.
        compute: Pure function of the arrays and int32 (k,) rows that returns columns.
        holds: What the key stands for.
    """

    key: Any
    arrays: tuple[Any, ...]
    compute: Callable[[tuple[Any, ...], Any], Any]
    holds: tuple[Any, ...]


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
        self._compiled: dict[Any, tuple[_Recipe, Any]] = {}

    def lookup(self, batch: Block, finish: Callable[[Any], Any]) -> Lookup | None:
        """Returns a batch of elements as their rows on the devices, or `None` if they are not there."""
        recipe = _recipe(batch.store) if self._left or self._placed else None
        if recipe is None or not self._place(recipe.arrays):
            return None
        even = len(batch) % self._replicas.count == 0
        key = (recipe.key, even)
        if key not in self._compiled:
            sharding = self._replicas.by_example if even else self._replicas.whole
            run = jax.jit(lambda arrays, rows: finish(recipe.compute(arrays, rows)), out_shardings=sharding)
            self._compiled[key] = (recipe, run)
        run = self._compiled[key][1]
        arrays = tuple(self._placed[id(a)][1] for a in recipe.arrays)
        rows = batch.rows.astype(np.int32)
        return Lookup(run, arrays, rows, jax.eval_shape(run, arrays, rows))

    def _place(self, arrays: tuple[Any, ...]) -> bool:
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


def _recipe(store: Store) -> _Recipe | None:
    if isinstance(store, ArrayStore):
        return _of_columns(store.columns, store)
    if isinstance(store, Kept):
        columns = store.columns
        return None if columns is None else _of_columns(columns, store)
    if isinstance(store, MappedStore):
        return _of_map(store)
    return _of_zip(store) if isinstance(store, ZippedStore) else None


def _of_columns(columns: Any, store: Store) -> _Recipe | None:
    leaves, structure = jax.tree.flatten(columns)
    if any(isinstance(leaf, Ragged) or leaf.dtype == object or len(leaf) >= 2**31 for leaf in leaves):
        return None

    def compute(arrays: tuple[Any, ...], rows: Any) -> Any:
        return structure.unflatten([a.take(rows, axis=0, mode="clip") for a in arrays])

    return _Recipe(("arrays", id(store)), tuple(leaves), compute, (store,))


def _of_map(store: MappedStore) -> _Recipe | None:
    many = store.program.vectorised if store.program.wholesale else None
    upstream = None if many is None else _recipe(store.upstream)
    if many is None or upstream is None:
        return None

    def compute(arrays: tuple[Any, ...], rows: Any) -> Any:
        return many.inline(upstream.compute(arrays, rows))

    key = ("map", id(store.program), upstream.key)
    return _Recipe(key, upstream.arrays, compute, (store.program, *upstream.holds))


def _of_zip(store: ZippedStore) -> _Recipe | None:
    found = [_recipe(s) for s in store.stores]
    parts = [r for r in found if r is not None]
    if len(parts) < len(found):
        return None
    cuts = np.cumsum([0, *(len(r.arrays) for r in parts)]).tolist()

    def compute(arrays: tuple[Any, ...], rows: Any) -> Any:
        pieces = [r.compute(arrays[a:b], rows) for r, a, b in zip(parts, cuts[:-1], cuts[1:], strict=True)]
        return jax.tree.unflatten(store.structure, pieces)

    key = ("zip", store.structure, *(r.key for r in parts))
    return _Recipe(key, tuple(a for r in parts for a in r.arrays), compute, tuple(h for r in parts for h in r.holds))


def batches_of(block: Block) -> list[Block] | None:
    """Returns the elements of each batch, or `None` if they are put together in another way."""
    store = block.store
    if not isinstance(store, StackedStore) or store.padding is not None:
        return None
    return [store.batch(int(row)) for row in block.rows]


def _limit(replicas: Replicas) -> int:
    device = replicas.local[0][1]
    if device.platform == "cpu":
        return 0
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", 0)) // _FRACTION
