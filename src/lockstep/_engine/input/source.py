"""Sources of batches: everything that Keras accepts as `x`, behind one interface.

Keras' own data adapters do the reading; they know arrays, pandas, `PyDataset`, grain, torch and tf.data.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import time
import types
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Protocol

import jax
import keras
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from lockstep._engine.input import random_state
from lockstep._engine.input.arrays import ArraySource, HeldArrays, check_same_arrays, description_of
from lockstep._engine.input.batch import check_same, not_empty, skip
from lockstep._engine.input.device_cache import DeviceCache
from lockstep._engine.input.distributed import DistributedSource, Distribution, of_dataset
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import canonical
from lockstep._types import JSON, PyTree, SourcePosition
from lockstep.data import Dataset, InputContext
from lockstep.data.internal import as_keras_batch, check_finite
from lockstep.errors import InputError

_SECONDS = 600.0
_POLL_SECONDS = 0.001


class Source(Protocol):
    """Global batches on the host, one pass after another.

    A saved position says how the open pass began, and how many batches of it were used. A source whose batches are
    `WithPosition` continues right there; any other begins the same pass again, and skips those batches.

    Attributes:
        in_memory: Reading a batch is quick and cannot fail.
        single_pass: There is only one pass: what one epoch leaves, the next one continues.
        kind: The kind of data; a position belongs to one kind.
        start: The position at the beginning of the pass.
        draws_at_end: The end of a pass runs code of the user's, which may draw the order of the next one.
    """

    in_memory: bool
    single_pass: bool
    kind: str
    start: Any
    draws_at_end: bool

    @property
    def held(self) -> HeldArrays | None:
        """Returns what workers compare of arrays in memory before their use; `None` for data read batch by batch."""
        ...

    @property
    def num_batches(self) -> int | None:
        """Returns the number of batches of a pass, if known."""
        ...

    def begin_pass(self) -> Iterator[Any]:
        """Starts a pass over the data."""
        ...

    def end_pass(self) -> None:
        """Ends the pass."""
        ...

    def peek(self) -> Any:
        """Returns a first batch, to learn its shapes, without consuming it."""
        ...

    def saved_position(self, position: SourcePosition) -> Any:
        """Returns the position in the open pass after the batch with this one, as JSON; a collective call."""
        ...

    def resume_pass(self, saved: JSON, batches: int, rows: int | None) -> Iterator[Any]:
        """Opens a pass at a position.

        Args:
            saved: The saved position.
            batches: How many batches of the pass were used.
            rows: How many rows the first of them had, if known.

        Raises:
            CheckpointError, ArgumentError: If it is not one of these data.
        """
        ...

    def between(self) -> Any:
        """Returns the state on which the next pass depends, if none is open, as JSON."""
        ...

    def follow(self, between: Any) -> None:
        """Restores the state of `between`."""
        ...


def source_of(x: PyTree, replicas: Replicas, divides: bool, **arguments: Any) -> Source:
    """Wraps `x` (and `y`, `sample_weight`, ... as `keras.Model.fit` takes them).

    Args:
        x: The data.
        replicas: The replicas.
        divides: Whether a worker may read its own rows of a batch only.
        **arguments: The arguments that go with `x`.
    """
    if (distribution := distribution_of(x, replicas)) is not None:
        check_finite(distribution.dataset, arguments.get("steps_per_epoch"))
        _refuse_beside("A dataset", arguments)
        class_weight = arguments.get("class_weight")
        # Class weights are looked up by Keras, on the host.
        finish, stays = partial(as_keras_batch, class_weight=class_weight), divides and class_weight is None
        return DistributedSource(distribution, finish, divides, stays)
    if isinstance(x, types.GeneratorType):
        _refuse_beside("A generator", arguments, "class_weight")
        return _Generator(x)
    adapter = data_adapters.get_data_adapter(x=x, **arguments)
    if divides and type(adapter) is ArrayDataAdapter:
        # Arrays that fit stay on the devices, and only row indices travel.
        slices = canonical(array_slicing.convert_to_sliceable(vars(adapter)["_inputs"], target_backend="jax"))
        leaves = [s for s in jax.tree.leaves(slices) if s is not None]
        if all(type(s) is array_slicing.NumpySliceable and s.array.dtype != object for s in leaves):
            cache, arrays = DeviceCache(replicas), jax.tree.map(lambda s: s.array, slices)
            if cache.hold(tuple(jax.tree.leaves(arrays))):
                return ArraySource(adapter, arrays, cache)
    return _Adapted(adapter, x)


def dataset_of(x: PyTree) -> PyTree:
    """Returns the dataset of a DatasetCreator, anything with a `dataset_fn`; all else as it is.

    Every task makes the whole: there is one pipeline, and one replica, since what a function divides by their number
    would be divided again here.

    Source: tf.keras.utils.experimental.DatasetCreator.
    """
    dataset_fn = getattr(x, "dataset_fn", None)
    return dataset_fn(InputContext()) if callable(dataset_fn) else x


def distribution_of(x: PyTree, replicas: Replicas) -> Distribution | None:
    """Returns how the workers divide a dataset, or `None` if `x` is none."""
    if isinstance(x, Dataset):
        return of_dataset(x, replicas)
    distribution = getattr(x, "_distribution", None)
    return distribution if isinstance(distribution, Distribution) else None


class _Adapted:
    """A source that one of Keras' data adapters reads.

    A `PyDataset` draws its order when a pass begins. So on all workers it is the chief's, because a pass begins with
    the chief's random state, and so it is with whatever else draws from the global generators.

    Args:
        adapter: The adapter.
        data: The data. If it has methods `get_state` and `set_state`, a position holds its state at the beginning
            of the pass.
    """

    single_pass = False
    start = None

    def __init__(self, adapter: DataAdapter, data: PyTree = None) -> None:
        self._adapter = adapter
        self._data = data
        self.in_memory = isinstance(adapter, ArrayDataAdapter)
        self.held = HeldArrays(adapter) if isinstance(adapter, ArrayDataAdapter) else None
        self.draws_at_end = isinstance(data, keras.utils.PyDataset)
        has_workers = getattr(adapter, "enqueuer", None) is not None and adapter.num_batches is not None
        self._enqueued = _Enqueued(adapter) if has_workers else None
        self.kind = "arrays" if self.in_memory else type(adapter).__name__.removesuffix("Adapter")
        self._beginning: Any = None

    @property
    def num_batches(self) -> int | None:
        return self._adapter.num_batches

    def begin_pass(self) -> Iterator[Any]:
        self._beginning = {"random": random_state.snapshot(), **self.between()}
        if self._enqueued is not None:
            self._enqueued.begin()
        self._adapter.on_epoch_begin()
        batches = map(canonical, self._adapter.get_jax_iterator())
        return batches if self._enqueued is None else self._enqueued.counted(batches)

    def end_pass(self) -> None:
        self._adapter.on_epoch_end()
        if self._enqueued is not None:
            self._enqueued.drop()

    def peek(self) -> Any:
        batch = next(self.begin_pass(), None)
        if self._enqueued is not None:
            self._enqueued.fill()
        self._adapter.on_epoch_end()  # Keras goes on with what was read ahead.
        return not_empty(batch)

    def saved_position(self, position: SourcePosition) -> Any:
        del position
        return self._beginning

    def resume_pass(self, saved: JSON, batches: int, rows: int | None) -> Iterator[Any]:
        self.follow(saved)
        with random_state_of_pass(saved["random"], batches):
            passing = self.begin_pass()
            skip(passing, batches, rows)
        return passing

    def between(self) -> Any:
        if self.in_memory:
            return description_of(self._adapter)
        state = self._data.get_state() if hasattr(self._data, "get_state") else None
        # The number of batches tells other data of the same kind.
        return {"batches per pass": self._adapter.num_batches, "data": state}

    def follow(self, between: Any) -> None:
        if self.in_memory:
            check_same_arrays(between, self._adapter)
            return
        saved = between["batches per pass"]
        check_same("the number of batches of a pass", saved, self._adapter.num_batches)
        if between["data"] is not None and hasattr(self._data, "set_state"):
            self._data.set_state(between["data"])


class _Enqueued:
    """Makes what a `keras.utils.PyDataset` with threads or processes reads independent of time.

    Keras' enqueuer draws its order on a thread of its own, and at the end of a pass keeps what was read ahead for the
    next one. So the order depends on what else draws random numbers meanwhile, and on how far it has read. Here a pass
    goes on once the order is drawn, and ends once the enqueuer's queue is full. The orders are those of Keras where it
    has the time that this takes.

    Args:
        adapter: A `PyDatasetAdapter` of a dataset with workers, and with an end.
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._enqueuer = adapter.enqueuer
        self._left_over = self._read = 0

    def begin(self) -> None:
        """Starts the enqueuer, and waits until it has drawn the order of the pass."""
        enqueuer = self._enqueuer
        self._left_over, self._read = enqueuer.ready_queue.qsize(), 0
        if enqueuer.running:
            return
        # What the last pass has left would look like the order of this one.
        enqueuer.indices = None
        enqueuer.start()
        self._wait(lambda: enqueuer.indices is not None)

    def counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches of a pass."""
        for batch in batches:
            self._read += 1
            yield batch
            if self._read == self._adapter.num_batches:
                self.fill()  # Keras stops the enqueuer next, and keeps what it has read.

    def fill(self) -> None:
        """Waits until the queue is full, and one batch is in hand."""
        count, enqueuer = self._adapter.num_batches, self._enqueuer
        ahead = max(0, self._read - self._left_over) + enqueuer.future_queue.maxsize + 1
        self._wait(lambda: operator.length_hint(enqueuer.indices, count) <= max(0, count - ahead))

    def drop(self) -> None:
        """Drops the rest of a pass that ended early, whose length depends on time."""
        if self._read < self._adapter.num_batches:
            while not self._enqueuer.ready_queue.empty():
                self._enqueuer.ready_queue.get_nowait()

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS
        while not is_done() and self._enqueuer.run_thread is not None and self._enqueuer.run_thread.is_alive():
            if time.monotonic() > deadline:
                raise InputError(
                    f"A PyDataset's workers must start within {_SECONDS:g} s. Received: "
                    f"{type(self._adapter.py_dataset).__name__}, which has not begun to read. Look at what its "
                    "processes wait for, or use workers=1."
                )
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def random_state_of_pass(beginning: JSON, batches: int) -> Generator[None]:
    """Restores the random state of the beginning of a pass, while so many of its batches are skipped.

    Data that draw from the global generators while they are read go on drawing from there. If none do, the random state
    is afterwards the one before.
    """
    now = random_state.snapshot()
    random_state.restore(beginning)
    began = random_state.snapshot()  # On a machine without torch it lacks torch's.
    yield
    if batches and random_state.snapshot() == began:
        random_state.restore(now)


class _Generator:
    """A Python generator, which is read once, over as many epochs as it lasts."""

    in_memory = False
    single_pass = True
    num_batches = None
    kind = "generator"
    start = None
    held = None
    draws_at_end = False

    def __init__(self, generator: Iterator[Any]) -> None:
        self._rest = map(_check_generated, generator)
        self._beginning: Any = None

    def begin_pass(self) -> Iterator[Any]:
        self._beginning = self._beginning or random_state.snapshot()
        return self

    def end_pass(self) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._rest)

    def peek(self) -> Any:
        first = not_empty(next(self._rest, None))
        self._rest = itertools.chain([first], self._rest)
        return first

    def saved_position(self, position: SourcePosition) -> Any:
        del position
        return {"random": self._beginning}

    def resume_pass(self, saved: JSON, batches: int, rows: int | None) -> Iterator[Any]:
        self._beginning = saved["random"]
        with random_state_of_pass(self._beginning, batches):
            skip(self, batches, rows)
        return self

    def between(self) -> Any:
        return {}

    def follow(self, between: Any) -> None:
        del between


def _check_generated(batch: Any) -> Any:
    if isinstance(batch, tuple) and 1 <= len(batch) <= 3:
        return canonical(batch)
    raise InputError(
        "A generator must yield tuples: (inputs,), (inputs, targets) or (inputs, targets, sample_weights). "
        f"Received: {type(batch).__name__}"
        + (f" of {len(batch)}" if isinstance(batch, tuple) else "")
        + ". Example: yield (x, y)"
    )


def _refuse_beside(what: str, arguments: dict[str, Any], *more: str) -> None:
    for name in ("y", "sample_weight", *more):
        if arguments.get(name) is not None:
            raise InputError(
                f"{what} yields everything that belongs to a batch. Received: x as a {what.split()[-1]}, and {name}. "
                "Yield (inputs, targets, sample_weights) instead."
            )
