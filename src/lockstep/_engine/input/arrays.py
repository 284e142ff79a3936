"""Arrays in memory as a source, and what workers compare of them before their use."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from keras.src.trainers.data_adapters import array_data_adapter
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from lockstep._engine.input import random_state
from lockstep._engine.input.batch import check_same, check_same_rows, describe_arrays, not_empty
from lockstep._engine.input.device_cache import DeviceCache, take_rows
from lockstep._engine.input.samples import Sample
from lockstep._engine.step.batches import BatchFn, GatherIndices
from lockstep._nest import canonical
from lockstep._types import JSON, PyTree, SourcePosition

# Batches whose row indices are computed in one call: a call costs more than a batch.
_BATCHES_AT_ONCE = 64
# An array is summed up whole up to so many bytes (0.1 ms), then some of its rows; other ones in each epoch.
_COMPARED_BYTES = 1 << 20


class HeldArrays:
    """Facts and checksums of the arrays in one of Keras' adapters, which workers compare."""

    def __init__(self, adapter: ArrayDataAdapter) -> None:
        self._adapter = adapter

    def facts(self) -> dict[str, Any]:
        """Returns their number of rows, dtypes and shapes, and how they are divided into batches, as JSON."""
        known = description_of(self._adapter)
        return {
            "arrays": {
                n + path: a for n, part in self._named().items() for path, a in describe_arrays(part, "rows").items()
            },
            "batch size": known["batch"],
            "rows": known["examples"],
            "shuffle": known["shuffle"],
        }

    def sample(self, number: int) -> Sample:
        """Returns a sample of their rows; another one for each number."""
        return Sample(self._named(), number, _COMPARED_BYTES)

    def _named(self) -> dict[str, Any]:
        inputs = vars(self._adapter)["_inputs"]
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        return dict(zip(("x", "y", "sample_weight"), parts, strict=False))


def facts_of(x: PyTree, **arguments: Any) -> dict[str, Any]:
    """Returns what workers compare of data that they read later: all facts of arrays, of anything else its kind."""
    if array_data_adapter.can_convert_arrays((x, arguments.get("y"), arguments.get("sample_weight"))):
        return HeldArrays(ArrayDataAdapter(x, **arguments)).facts()
    return {"kind": type(x).__name__}


class ArraySource:
    """Arrays in memory, which stay on the devices; their rows in the order of Keras' adapter.

    Args:
        adapter: An `ArrayDataAdapter`, which draws the order.
        arrays: A pytree of numpy arrays: (x, y, sample_weight).
        cache: Holds them on the devices.
    """

    in_memory = True
    single_pass = False
    kind = "arrays"
    start = None
    draws_at_end = False

    def __init__(self, adapter: Any, arrays: Any, cache: DeviceCache) -> None:
        self._adapter = adapter
        self.held = HeldArrays(adapter)
        self._cache = cache
        leaves, structure = jax.tree.flatten(canonical(arrays))
        self._leaves = tuple(leaves)
        self._recipe = BatchFn(("rows", structure), partial(take_rows, structure))
        self._beginning: Any = None

    @property
    def num_batches(self) -> int | None:
        return self._adapter.num_batches

    def begin_pass(self) -> Iterator[Any]:
        return self._lookups(self._draw_rows())

    def _draw_rows(self) -> Iterator[Any]:
        """Returns the row indices of each batch. Draws all random numbers here, so that reading ahead draws none."""
        draws = bool(vars(self._adapter)["_shuffle"])
        self._beginning = random_state.snapshot() if draws else None
        self._adapter.on_epoch_begin()
        numbers = np.arange(len(self._leaves[0]), dtype=np.int32)
        orders = self._adapter._get_iterator(lambda a, indices: a[indices], (numbers,))
        if vars(self._adapter)["_shuffle"] == "batch":
            # Keras shuffles batches while it yields them.
            orders = iter(list(orders))
        # Keras draws the permutation when the first batch is asked for.
        first = next(orders, None)
        return (rows for (rows,) in itertools.chain([] if first is None else [first], orders))

    def _lookups(self, orders: Iterator[Any]) -> Iterator[GatherIndices]:
        while some := [np.asarray(rows, np.int32) for rows in itertools.islice(orders, _BATCHES_AT_ONCE)]:
            lookups = self._cache.rows_of(self._leaves, some, self._recipe)
            assert lookups is not None, "arrays are on the devices before they are looked up there"
            yield from lookups

    def end_pass(self) -> None:
        self._adapter.on_epoch_end()

    def peek(self) -> Any:
        # Draws the order of a pass, as Keras does when it looks: so what follows has the order that it has there.
        first = not_empty(next(self.begin_pass(), None))
        self.end_pass()
        return self._recipe(self._leaves, first.rows)

    def saved_position(self, position: SourcePosition) -> Any:
        del position
        return {"random": self._beginning, **description_of(self._adapter)}

    def resume_pass(self, saved: JSON, batches: int, rows: int | None) -> Iterator[Any]:
        del rows
        check_same_arrays(saved, self._adapter)
        now = random_state.snapshot()
        if saved["random"] is not None:
            random_state.restore(saved["random"])
        orders = self._draw_rows()
        random_state.restore(now)
        return self._lookups(itertools.islice(orders, batches, None))

    def between(self) -> Any:
        return description_of(self._adapter)

    def follow(self, between: Any) -> None:
        check_same_arrays(between, self._adapter)


def description_of(adapter: Any) -> dict[str, Any]:
    """Returns the facts that arrays must have in common with those of a position."""
    known = vars(adapter)
    return {"examples": known["_num_samples"], "batch": known["_batch_size"], "shuffle": str(known["_shuffle"])}


def check_same_arrays(saved: JSON, adapter: Any) -> None:
    """Raises `CheckpointError` unless arrays are like those of a position."""
    actual = description_of(adapter)
    check_same_rows(saved["batch"], actual["batch"])
    check_same("the number of examples", saved["examples"], actual["examples"])
    check_same("shuffle", saved["shuffle"], actual["shuffle"])
