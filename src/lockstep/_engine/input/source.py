"""Where batches come from: everything that Keras accepts as `x`, behind one interface.

Keras' own data adapters do the reading; they know arrays, pandas, `PyDataset`, grain, torch and tf.data.
"""

from __future__ import annotations

import contextlib
import itertools
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
from lockstep._engine.input.arrays import ArraySource, Held, demand_same_arrays, description_of
from lockstep._engine.input.batch import not_empty
from lockstep._engine.input.datasets import Combined, Followed, Need
from lockstep._engine.input.distributed import Distribution, of_dataset
from lockstep._engine.input.position import demand_same, pass_over
from lockstep._engine.input.py_dataset import enqueued
from lockstep._engine.input.resident import Residents
from lockstep._engine.step.batches import EvenShard, GatherIndices, RaggedShard, host_rows
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import canonical
from lockstep.data import Dataset
from lockstep.data.internal import as_keras_batch, check_finite, example_of, plan_of
from lockstep.errors import InputError


class Source(Protocol):
    """Global batches on the host, one pass after another.

    A position is what the open pass began with, and how many batches of it were used. A source whose batches are
    `Marked` says by a mark where to continue; any other begins the same pass again, and passes over those batches.

    Attributes:
        in_memory: Reading a batch is quick and cannot fail.
        single_pass: There is only one pass: what one epoch leaves, the next one continues.
        kind: What it reads; a position belongs to one kind.
        start: The mark at the beginning of the pass.
        draws_at_end: The end of a pass runs code of the user's, which may draw the order of the next one.
    """

    in_memory: bool
    single_pass: bool
    kind: str
    start: Any
    draws_at_end: bool

    @property
    def held(self) -> Held | None:
        """Returns what tasks compare of arrays in memory before their use; `None` for data read batch by batch."""
        ...

    @property
    def num_batches(self) -> int | None:
        """Batches of one pass, if known."""
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

    def saved(self, mark: Any) -> Any:
        """Returns the position in the open pass after the batch with this mark, as JSON; all tasks call it."""
        ...

    def resume_pass(self, saved: Any, batches: int, rows: int | None) -> Iterator[Any]:
        """Opens a pass at a position.

        Args:
            saved: What `saved` returned.
            batches: How many batches of the pass were used.
            rows: How many rows the first of them had, if known.

        Raises:
            CheckpointError, ArgumentError: If the data are not those of the position.
        """
        ...

    def between(self) -> Any:
        """Returns what the next pass depends on, if none is open, as JSON."""
        ...

    def follow(self, between: Any) -> None:
        """Has the next pass be the one that follows."""
        ...


def source_of(x: Any, replicas: Replicas, divides: bool, **arguments: Any) -> Source:
    """Wraps `x` (and `y`, `sample_weight`, ... as `keras.Model.fit` takes them).

    Args:
        x: The data.
        replicas: Who trains.
        divides: Whether a task may read its own rows of a batch only.
        **arguments: What goes with `x`.
    """
    if (distribution := distribution_of(x, replicas)) is not None:
        check_finite(distribution.dataset, arguments.get("steps_per_epoch"))
        class_weight = class_weight_of("a dataset", arguments)
        # Class weights are looked up by Keras, on the host.
        finish, stays = partial(as_keras_batch, class_weight=class_weight), divides and class_weight is None
        return DistributedSource(distribution, finish, divides, stays)
    if isinstance(x, types.GeneratorType):
        _refuse_beside("A generator", arguments, "class_weight")
        return _Generator(x)
    return _adapted(data_adapters.get_data_adapter(x=x, **arguments), replicas, divides, x)


def distribution_of(x: Any, replicas: Replicas) -> Distribution | None:
    """Returns how the tasks divide a dataset, or `None` if `x` is none."""
    if isinstance(x, Dataset):
        return of_dataset(x, replicas)
    found = getattr(x, "_distribution", None)
    return found if isinstance(found, Distribution) else None


def class_weight_of(what: str, arguments: dict[str, Any]) -> Any:
    """Returns the class weights that go with a dataset, which itself holds all else."""
    _refuse_beside(what.capitalize(), arguments)
    return arguments.get("class_weight")


def _adapted(adapter: Any, replicas: Replicas, divides: bool, data: Any) -> Source:
    """A source that one of Keras' data adapters reads; if it can be, from arrays on the devices."""
    if divides and type(adapter) is ArrayDataAdapter:
        slices = canonical(array_slicing.convert_to_sliceable(vars(adapter)["_inputs"], target_backend="jax"))
        found = [s for s in jax.tree.leaves(slices) if s is not None]
        residents = Residents(replicas)
        if all(type(s) is array_slicing.NumpySliceable and s.array.dtype != object for s in found):
            arrays = jax.tree.map(lambda s: s.array, slices)
            if residents.hold(tuple(jax.tree.leaves(arrays))):
                return ArraySource(adapter, arrays, residents)
    return _Adapted(adapter, data)


class _Adapted:
    """A source that one of Keras' data adapters reads.

    A `PyDataset` draws its order when a pass begins. So on all tasks it is the chief's, because a pass begins with the
    chief's random state, and so it is with whatever else draws from the global generators.

    Args:
        adapter: Reads it.
        data: What is read. If it has methods `get_state` and `set_state`, a position holds its state at the beginning
            of the pass.
    """

    single_pass = False
    start = None

    def __init__(self, adapter: DataAdapter, data: Any = None) -> None:
        self._adapter = adapter
        self._data = data
        self.in_memory = isinstance(adapter, ArrayDataAdapter)
        self.held = Held(adapter) if isinstance(adapter, ArrayDataAdapter) else None
        self.draws_at_end = isinstance(data, keras.utils.PyDataset)
        self._enqueued = enqueued(adapter)
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

    def saved(self, mark: Any) -> Any:
        del mark
        return self._beginning

    def resume_pass(self, saved: Any, batches: int, rows: int | None) -> Iterator[Any]:
        self.follow(saved)
        with drawing_again(saved["random"], batches):
            passing = self.begin_pass()
            pass_over(passing, batches, rows)
        return passing

    def between(self) -> Any:
        if self.in_memory:
            return description_of(self._adapter)
        own = self._data.get_state() if hasattr(self._data, "get_state") else None
        return {"batches per pass": self._adapter.num_batches, "data": own}

    def follow(self, between: Any) -> None:
        if self.in_memory:
            demand_same_arrays(between, self._adapter)
            return
        saved = between["batches per pass"]
        demand_same("the number of batches of a pass", saved, self._adapter.num_batches)
        if between["data"] is not None and hasattr(self._data, "set_state"):
            self._data.set_state(between["data"])


@contextlib.contextmanager
def drawing_again(beginning: Any, batches: int) -> Generator[None]:
    """While open, the random state is that of the beginning of a pass, of which so many batches are passed over.

    What draws from the global generators while it is read goes on drawing where it was. If nothing does, the random
    state is afterwards what it was before.
    """
    now = random_state.snapshot()
    random_state.restore(beginning)
    began = random_state.snapshot()  # On a machine without torch it lacks torch's.
    yield
    if batches and random_state.snapshot() == began:
        random_state.restore(now)


class DistributedSource:
    """A dataset that the tasks divide.

    Args:
        distribution: How they do.
        finish: What to make of computed rows.
        divides: Whether a task may read its own rows of a batch only.
        stays: Whether data may stay on accelerators.
    """

    in_memory = False
    single_pass = False
    kind = "dataset"
    held = None
    draws_at_end = False

    def __init__(
        self, distribution: Distribution, finish: Callable[[Any], Any], divides: bool = True, stays: bool = True
    ) -> None:
        self._distribution = distribution
        self._begun: Iterator[Any] | None = None
        self._passing: Followed | Combined | None = None
        self.start: Any = None
        self._need = Need(
            partial(host_rows, distribution.replicas) if divides else lambda count: None,
            finish,
            Residents(distribution.replicas) if stays else None,
        )

    @property
    def num_batches(self) -> int | None:
        return self._distribution.num_batches

    def begin_pass(self) -> Iterator[Any]:
        begun, self._begun = self._begun, None
        return begun or self._opened(None)

    def _opened(self, position: Any) -> Iterator[Any]:
        self._passing = self._distribution.begin(self._need, position)
        self.start = self._passing.mark()
        return iter(self._passing)

    def end_pass(self) -> None:
        self._passing = None

    def saved(self, mark: Any) -> Any:
        assert self._passing is not None
        return self._distribution.saved(self._passing, mark)

    def resume_pass(self, saved: Any, batches: int, rows: int | None) -> Iterator[Any]:
        del batches, rows
        self._begun = None
        return self._opened(saved)

    def between(self) -> Any:
        known = vars(self._distribution.dataset)
        # A pass that was opened to look at its first batch is the next one.
        return {"entropy": known["_entropy"], "passes": known["_passes"] - (self._begun is not None)}

    def follow(self, between: Any) -> None:
        self._begun = None
        vars(self._distribution.dataset).update(_entropy=between["entropy"], _passes=between["passes"])

    def peek(self) -> Any:
        plan = plan_of(self._distribution.dataset)
        if plan.replayable:
            return self._need.finish(not_empty(example_of(plan)))
        batches = self.begin_pass()  # Looking twice would have effects: the pass goes on where this look ends.
        first = not_empty(next(batches, None))
        self._begun = itertools.chain([first], batches)
        if isinstance(first.batch, GatherIndices):
            return first.batch.batch_fn(first.batch.arrays, first.batch.rows)
        return first.batch.data if isinstance(first.batch, (RaggedShard, EvenShard)) else first.batch


class _Generator:
    """A Python generator: read once, by however many epochs it lasts for."""

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

    def saved(self, mark: Any) -> Any:
        del mark
        return {"random": self._beginning}

    def resume_pass(self, saved: Any, batches: int, rows: int | None) -> Iterator[Any]:
        self._beginning = saved["random"]
        with drawing_again(self._beginning, batches):
            pass_over(self, batches, rows)
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
