"""Arrays in memory as a source, and what tasks compare of them before they are used."""

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
from lockstep._engine.input.batch import described, not_empty
from lockstep._engine.input.position import demand_same, demand_same_rows
from lockstep._engine.input.resident import Residents, taken
from lockstep._engine.input.samples import Sample
from lockstep._engine.step.batches import BatchFn, GatherIndices
from lockstep._nest import canonical

# So many batches are looked up in one go: one call costs more than a batch.
_TOGETHER = 64
# An array is summed up whole up to so many bytes (0.1 ms), then some of its rows; other ones in each epoch.
_COMPARED_BYTES = 1 << 20


class Held:
    """Facts and checksums of the arrays in one of Keras' adapters, which tasks compare.

    Args:
        adapter: Holds them.
    """

    def __init__(self, adapter: ArrayDataAdapter) -> None:
        self._adapter = adapter

    def facts(self) -> dict[str, Any]:
        """Returns their number of rows, dtypes and shapes, and how they are divided into batches, as JSON."""
        known = description_of(self._adapter)
        return {
            "arrays": {n + path: a for n, part in self._named().items() for path, a in described(part, "rows").items()},
            "batch size": known["batch"],
            "rows": known["examples"],
            "shuffle": known["shuffle"],
        }

    def sample(self, number: int) -> Sample:
        """Returns a sample of their rows; another one for each number."""
        return Sample(self._named(), number, _COMPARED_BYTES)

    def _named(self) -> dict[str, Any]:
        given = vars(self._adapter)["_inputs"]
        parts = given if isinstance(given, tuple) else (given,)
        return dict(zip(("x", "y", "sample_weight"), parts, strict=False))


def facts_of(x: Any, **arguments: Any) -> dict[str, Any]:
    """Returns what tasks compare of data that they read later: of arrays all of it, of anything else its kind.

    Args:
        x: The data.
        **arguments: What goes with `x`.
    """
    if array_data_adapter.can_convert_arrays((x, arguments.get("y"), arguments.get("sample_weight"))):
        return Held(ArrayDataAdapter(x, **arguments)).facts()
    return {"kind": type(x).__name__}


class ArraySource:
    """Arrays in memory, which stay on the devices; their rows in the order in which Keras' adapter gives them.

    Args:
        adapter: An `ArrayDataAdapter`, which knows the order.
        arrays: A structure of numpy arrays: (x, y, sample_weight) as given.
        residents: Holds them.
    """

    in_memory = True
    single_pass = False
    kind = "arrays"
    start = None
    draws_at_end = False

    def __init__(self, adapter: Any, arrays: Any, residents: Residents) -> None:
        self._adapter = adapter
        self.held = Held(adapter)
        self._residents = residents
        leaves, structure = jax.tree.flatten(canonical(arrays))
        self._leaves = tuple(leaves)
        self._recipe = BatchFn(("rows", structure), partial(taken, structure))
        self._beginning: Any = None

    @property
    def num_batches(self) -> int | None:
        return self._adapter.num_batches

    def begin_pass(self) -> Iterator[Any]:
        return self._looked_up(self._orders())

    def _orders(self) -> Iterator[Any]:
        """The rows of each batch. All random numbers are drawn here, so that reading ahead draws none."""
        self._beginning = random_state.snapshot() if self._draws else None
        self._adapter.on_epoch_begin()
        numbers = np.arange(len(self._leaves[0]), dtype=np.int32)
        orders = self._adapter._get_iterator(lambda a, indices: a[indices], (numbers,))
        if vars(self._adapter)["_shuffle"] == "batch":
            orders = iter(list(orders))
        first = next(orders, None)
        return (rows for (rows,) in itertools.chain([] if first is None else [first], orders))

    @property
    def _draws(self) -> bool:
        return bool(vars(self._adapter)["_shuffle"])

    def _looked_up(self, orders: Iterator[Any]) -> Iterator[GatherIndices]:
        while some := [np.asarray(rows, np.int32) for rows in itertools.islice(orders, _TOGETHER)]:
            found = self._residents.rows_of(self._leaves, some, self._recipe)
            assert found is not None, "arrays are on the devices before they are looked up there"
            yield from found

    def end_pass(self) -> None:
        self._adapter.on_epoch_end()

    def peek(self) -> Any:
        # Draws the order of a pass, as Keras does when it looks: so what follows has the order that it has there.
        first = not_empty(next(self.begin_pass(), None))
        self.end_pass()
        return self._recipe(self._leaves, first.rows)

    def saved(self, mark: Any) -> Any:
        del mark
        return {"random": self._beginning, **description_of(self._adapter)}

    def resume_pass(self, saved: Any, batches: int, rows: int | None) -> Iterator[Any]:
        del rows
        demand_same_arrays(saved, self._adapter)
        now = random_state.snapshot()
        if saved["random"] is not None:
            random_state.restore(saved["random"])
        orders = self._orders()
        random_state.restore(now)
        return self._looked_up(itertools.islice(orders, batches, None))

    def between(self) -> Any:
        return description_of(self._adapter)

    def follow(self, between: Any) -> None:
        demand_same_arrays(between, self._adapter)


def description_of(adapter: Any) -> dict[str, Any]:
    """Returns what arrays must have in common with those of a position."""
    known = vars(adapter)
    return {"examples": known["_num_samples"], "batch": known["_batch_size"], "shuffle": str(known["_shuffle"])}


def demand_same_arrays(saved: Any, adapter: Any) -> None:
    """Raises `CheckpointError` unless arrays are like those of a position."""
    found = description_of(adapter)
    demand_same_rows(saved["batch"], found["batch"])
    demand_same("the number of examples", saved["examples"], found["examples"])
    demand_same("shuffle", saved["shuffle"], found["shuffle"])
