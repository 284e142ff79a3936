"""Global batches as each worker reads them, from any kind of source, run there by `test_same_batches.py`."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import grain
import jax
import keras
import numpy as np

from lockstep._engine.input import random_state
from lockstep._engine.input.batch import unwrap
from lockstep._engine.input.feed import Feed
from lockstep._engine.input.source import source_of
from lockstep._engine.keras import agreement
from lockstep._engine.step.batches import DeviceBatch, EvenShard, GatherIndices, Split
from lockstep.data import Dataset
from lockstep.errors import LockstepError
from lockstep.training._program_source import Batches

EPOCHS = 2


class _Records:
    """A step program that writes down which examples this worker has of each batch."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def prepare(self, batch: Any) -> Any:
        return unwrap(batch)

    def decide(self, state: Any, batch: Any) -> None:
        """Has decided."""

    def chunk_capacity(self, batch: Any) -> int:
        return 0

    def place(self, batches: Sequence[Any]) -> DeviceBatch:
        for batch in batches:
            data = batch
            if isinstance(batch, GatherIndices):
                data = batch.batch_fn(tuple(np.asarray(a.addressable_data(0)) for a in batch.arrays), batch.rows)
            data = data.data if isinstance(data, EvenShard) else data
            numbers = [int(v) for v in np.ravel(jax.tree.leaves(data)[1])]
            self.seen.append([isinstance(batch, EvenShard), numbers])
        return DeviceBatch(list(batches), Split.WHOLE, capacity=0, steps=len(batches))


class _NoState:
    """A model without variables."""

    def signature(self) -> dict[str, str]:
        return {}

    def digest(self) -> str:
        return ""

    def compiled(self) -> list[str]:
        return []

    def has_changed(self) -> bool:
        return False

    def follow_chief(self, everything: bool = False) -> None:
        """Has nothing to follow with."""

    def changes(self) -> int:
        return 0


class _Numbers(keras.utils.PyDataset):
    def __init__(self, arrays: Any, size: int, order: str, me: int, **options: Any) -> None:
        super().__init__(**options)
        self._arrays, self._size, self._order = arrays, size, order
        self._own = np.random.default_rng(100 + me)
        self._rows = np.arange(len(arrays[0]))

    def __len__(self) -> int:
        return -(-len(self._arrays[0]) // self._size)

    def __getitem__(self, index: int) -> Any:
        rows = self._rows[index * self._size : (index + 1) * self._size]
        return tuple(a[rows] for a in self._arrays)

    def on_epoch_end(self) -> None:
        if self._order == "global":
            np.random.shuffle(self._rows)
        if self._order == "own":
            self._own.shuffle(self._rows)


def _orders(order: str, rows: int, me: int) -> Iterator[Any]:
    """The rows of one pass after another."""
    own = np.random.default_rng(100 + me)
    while True:
        if order == "none":
            yield np.arange(rows)
        else:
            yield (own.permutation if order == "own" else np.random.permutation)(rows)


def _generated(arrays: Any, size: int, order: str, me: int, passes: int) -> Iterator[Any]:
    rows = len(arrays[0])
    for _, chosen in zip(range(passes), _orders(order, rows, me), strict=False):
        for start in range(0, rows, size):
            yield tuple(a[chosen[start : start + size]] for a in arrays)


class _Iterable:
    def __init__(self, arrays: Any, size: int, order: str, me: int) -> None:
        self._arrays, self._size = arrays, size
        self._orders = _orders(order, len(arrays[0]), me)

    def __iter__(self) -> Iterator[Any]:
        chosen = next(self._orders)
        for start in range(0, len(chosen), self._size):
            yield tuple(a[chosen[start : start + self._size]] for a in self._arrays)


def _dataset(arrays: Any, kind: str, size: int, order: str, me: int) -> Dataset:
    if kind == "generated dataset":
        data = Dataset.from_generator(lambda: iter(list(zip(*arrays, strict=True))))
    else:
        data = Dataset.from_tensor_slices(arrays)
    if kind == "mapped dataset":
        data = data.map(lambda x, y, *more: (x * 2, y, *more))
    if kind == "cached dataset":
        data = data.map(lambda x, y, *more: (x + 1, y, *more)).cache()
    if order != "none":
        data = data.shuffle(len(arrays[0]), seed=100 + me if order == "own" else None)
    return data.batch(size)


def _source(strategy: Any, kind: str, order: str, arrays: Any, size: int, me: int) -> Any:
    def over(x: Any, **arguments: Any) -> Any:
        return source_of(x, strategy._replicas, True, shuffle=order != "none", **arguments)

    if "dataset" in kind:
        return over(_dataset(arrays, kind, size, order, me))
    if kind.startswith("arrays"):
        x, y, *weights = arrays
        given = keras.ops.convert_to_tensor(x) if kind == "arrays of jax" else x
        return over(given, y=y, batch_size=size, sample_weight=next(iter(weights), None))
    if kind.startswith("PyDataset"):
        options: Any = {"workers": 3} if "threads" in kind else {}
        return over(_Numbers(arrays, size, order, me, **options))
    if kind == "grain":
        rows = grain.MapDataset.source(list(zip(*arrays, strict=True)))
        # grain has its own seeds; without one it shuffles by Python's generator, if at all.
        shuffled = rows if order == "none" else rows.shuffle(seed=7 + (me if order == "own" else 0))
        return over(shuffled.batch(size, batch_fn=_stacked))
    if kind == "generator":
        return over(_generated(arrays, size, order, me, EPOCHS), steps_per_epoch=-(-len(arrays[0]) // size))
    assert kind == "iterable"
    return Batches(_Iterable(arrays, size, order, me))


def _stacked(examples: Any) -> Any:
    return tuple(np.stack(column) for column in zip(*examples, strict=True))


def _arrays(rows: int, size: int, odd: str) -> tuple[Any, int]:
    """The data, which one worker has otherwise, and its batch size."""
    x = np.arange(2 * rows, dtype="float32").reshape(rows, 2)
    y = np.arange(rows, dtype="int32")
    if odd == "rows":
        x, y = x[:-1], y[:-1]
    if odd == "values":
        x = x + np.float32(0.5)
    if odd == "one batch":
        x[-min(size, rows) :] += np.float32(0.5)
    if odd == "labels":
        y = y[::-1].copy()
    if odd == "dtype":
        x = x.astype("int32")
    if odd == "shape":
        x = x.reshape(rows, 2, 1)
    more = (np.ones(rows, "float32"),) if odd == "sample_weight" else ()
    return (x, y, *more), size + (odd == "batch size")


def read(strategy: Any, kind: str, order: str, rows: int, size: int, odd: str, looks: bool) -> dict[str, np.ndarray]:
    """Two epochs as `fit` reads them; the last worker's data are odd."""
    runtime = strategy._replicas.runtime
    me = runtime.process
    random.seed(me)
    np.random.seed(me)
    arrays, size = _arrays(rows, size, odd if me == len(runtime.tasks) - 1 and me else "none")
    program, state = _Records(), _NoState()
    error = ""
    try:
        with warnings.catch_warnings(), runtime.collective_region("read"):
            warnings.simplefilter("ignore", UserWarning)
            random_state.follow_chief(runtime, "read")
            source = _source(strategy, kind, order, arrays, size, me)
            if looks:
                source.peek()
            steps = -(-len(arrays[0]) // size) if kind == "generator" else None
            feed = Feed(source, program, runtime, steps)  # pyright: ignore[reportArgumentType]
            agreement.begin_run(runtime, "read", state, {}, feed)
            for epoch in range(EPOCHS):
                agreement.begin_epoch(runtime, epoch, state, feed)
                with feed.epoch(()) as chunks:
                    for _ in chunks:
                        random.random(), np.random.random(1 + me)  # As callbacks may, on each worker differently.
    except LockstepError as found:
        error = f"{type(found).__name__}: {found}"
    return {"seen": np.asarray(json.dumps(program.seen)), "error": np.asarray(error)}
