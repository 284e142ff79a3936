"""Readers of datasets: one plan that every worker reads its own rows of, or several pipelines that make up a batch.

A `ReplicatedReader` goes through the same plan as those of all other workers; each computes its rows of a batch. The
global batches are those of a single worker.

An `InterleavedReader` reads some of several pipelines, at first one per worker, and a global batch is what they yield
together. A job that goes on with another number of workers keeps the pipelines: each worker takes some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.batch import WithPosition
from lockstep._engine.input.device_cache import DeviceCache
from lockstep._engine.input.samples import samples_of
from lockstep._engine.step.batches import EvenShard, OfReplicas, RaggedShard
from lockstep._types import Element, PyTree
from lockstep.data.internal import (
    Block,
    ElementStream,
    Node,
    PlanReader,
    Run,
    StackedStore,
    elements_of,
    example_of,
    open_at,
    spec_if_known,
)
from lockstep.data.internal import pool as _pool
from lockstep.errors import InputError

# Returns this worker's rows of a batch of so many; `None` for all of them.
Rows = Callable[[int], slice | None]


def identity(data: PyTree) -> Any:
    """Returns `data`."""
    return data


@dataclass(frozen=True)
class ShardSpec:
    """The shard of each batch that a worker computes.

    Attributes:
        rows: The rows.
        finish: Applied to computed rows.
        cache: The data on the devices, or `None` for batches on the host.
        is_apart: Whether elements of several pipelines, or several of one, stay apart, one for each replica.
    """

    rows: Rows = lambda count: None
    finish: Callable[[Any], Any] = identity
    cache: DeviceCache | None = None
    is_apart: bool = False

    def __call__(self, block: Block) -> list[Any]:
        """Returns the shards of a block of batches: row indices if all their data are on the devices, else rows."""
        batches = None if self.cache is None else _batches_of(block)
        if self.cache is not None and batches is not None:
            lookups = self.cache.lookups(batches, self.finish)
            if lookups:
                return lookups
        return [
            EvenShard(self.finish(shard.data), shard.count) if isinstance(shard, EvenShard) else self.finish(shard)
            for shard in _shards(block, self.rows)
        ]


class ReplicatedReader:
    """Iterates over this worker's shards of the batches of a plan, which all workers go through.

    Args:
        spec: This worker's shard.
        position: Where to continue, or `None` for the beginning.
        threads: How many compute elements at most; 0 for one per core.
        compares: Whether batches come with samples of their elements.
    """

    def __init__(
        self, plan: Node, run: Run, spec: ShardSpec, position: Any = None, threads: int = 0, compares: bool = False
    ) -> None:
        def compute(block: Block) -> list[Any]:
            # Of the whole batch: workers compute different rows of it.
            samples = samples_of(block) if compares else [None] * len(block)
            return list(zip(spec(block), samples, strict=True))

        self._reader = PlanReader(plan, run) if position is None else open_at(plan, position)
        self._stream = ElementStream(self._reader, compute, threads or _pool.cores())

    def __iter__(self) -> Iterator[WithPosition]:
        return self

    def __next__(self) -> WithPosition:
        batch, sample = next(self._stream)
        return WithPosition(batch, self._stream.mark(), sample)

    def position(self) -> Any:
        """Returns the position after the last batch."""
        return self._stream.mark()

    def to_json(self, position: Any) -> Any:
        """Returns a position as JSON."""
        return self._reader.position(position)


def _shards(block: Block, rows: Rows) -> list[Any]:
    """Computes this worker's rows of each batch: a `EvenShard`, or all if `rows` says so."""
    store = block.store
    # Padding depends on all rows of a batch, so each worker computes them all.
    if not isinstance(store, StackedStore) or store.padding is not None:
        return [_cut(element, rows) for element in elements_of(block)]
    batches = [store.batch(int(row)) for row in block.rows]
    wanted = [rows(len(batch)) for batch in batches]
    if all(w is None for w in wanted):
        return elements_of(block)
    return [
        _stack(b) if w is None else EvenShard(_stack_rows(b, w), len(b)) for b, w in zip(batches, wanted, strict=True)
    ]


def _stack_rows(batch: Block, rows: slice) -> Any:
    part = batch[rows]
    # Of no rows, their shapes and dtypes.
    return _stack(part) if len(part) else jax.tree.map(lambda a: a[:0], _stack(batch[:1]))


def _stack(block: Block) -> Any:
    """Computes elements as one batch."""
    return StackedStore(block, len(block), None).element(0)


def _cut(element: Element, rows: Rows) -> Any:
    """Cuts this worker's rows out of a computed batch."""
    lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(element)}
    count = lengths.pop() if len(lengths) == 1 else ()
    if not count or (wanted := rows(count[0])) is None:
        return element
    return EvenShard(jax.tree.map(lambda a: a[wanted], element), count[0])


@dataclass(frozen=True)
class Pipelines:
    """Pipelines that yield batches together.

    Attributes:
        count: Their number.
        plan_of: Returns the plan of one.
        elements: How many elements of each belong to one global batch.
    """

    count: int
    plan_of: Callable[[int], Node]
    elements: int = 1

    def of_worker(self, worker: int, workers: int) -> range:
        """Returns the pipelines of a worker: neighbours, so that the order of rows does not depend on the workers."""
        return range(worker * self.count // workers, (worker + 1) * self.count // workers)


class InterleavedReader:
    """Iterates over the rows that this worker's pipelines add to each batch.

    Args:
        pipelines: All pipelines.
        worker: This worker's number among `workers`.
        workers: The number of workers.
        spec: What is applied to computed rows.
        positions: Those of all pipelines, where to continue; or `None`.
        threads: How many compute elements at most; 0 for one per core.
    """

    def __init__(
        self,
        pipelines: Pipelines,
        run: Run,
        worker: int,
        workers: int,
        spec: ShardSpec,
        positions: Sequence[Any] | None = None,
        threads: int = 0,
    ) -> None:
        self._pipelines = pipelines
        self._finish = spec.finish
        self._is_alone = workers == 1
        self._is_apart = spec.is_apart
        mine = pipelines.of_worker(worker, workers)
        self._plans = [pipelines.plan_of(i) for i in mine]
        self._readers = [
            PlanReader(plan, run.for_input(i)) if positions is None else open_at(plan, positions[i])
            for i, plan in zip(mine, self._plans, strict=True)
        ]
        # One pipeline that one worker reads yields the batches themselves, with nothing to concatenate.
        self._is_only = workers == pipelines.count == pipelines.elements == 1
        compute = spec if self._is_only else elements_of
        self._streams = [ElementStream(r, compute, threads or _pool.cores()) for r in self._readers]
        self._no_batch: Any = None

    def __iter__(self) -> Iterator[WithPosition]:
        return self

    def __next__(self) -> WithPosition:
        if self._is_only:
            return WithPosition(next(self._streams[0]), self.position())
        # Fewer from pipelines that have ended; none when all have.
        elements = [e for s in self._streams for _ in range(self._pipelines.elements) for e in _next(s)]
        if not elements and self._is_alone:
            raise StopIteration
        wanted = len(self._streams) * self._pipelines.elements
        if elements and self._is_apart and wanted > 1:
            data = self._apart(elements, wanted)
        elif len(elements) == 1:
            data = self._finish(elements[0])
        elif elements:
            data = self._finish(jax.tree.map(lambda *rows: np.concatenate([np.asarray(r) for r in rows]), *elements))
        else:
            data = self._nothing()
        return WithPosition(data if self._is_alone else RaggedShard(data), self.position())

    def _nothing(self) -> Any:
        """Returns a batch of no rows: a worker without data still takes part in the others' steps."""
        if self._no_batch is None:
            plans = self._plans or [self._pipelines.plan_of(0)]
            self._no_batch = self._finish(_no_rows(plans[0], self._pipelines))
        return self._no_batch

    def _apart(self, elements: Sequence[Any], wanted: int) -> Any:
        """Returns an element for each replica; where the data have ended, ones of no rows."""
        if len(elements) < wanted:
            if any(not np.ndim(leaf) for leaf in jax.tree.leaves(elements[0])):
                # As in TensorFlow: what has no rows cannot be there for some replicas only.
                if self._is_alone:
                    raise StopIteration
                return self._nothing()
            nothing = jax.tree.map(lambda a: np.asarray(a)[:0], elements[-1])
            elements = [*elements, *[nothing] * (wanted - len(elements))]
        return OfReplicas(tuple(self._finish(e) for e in elements))

    def position(self) -> Any:
        """Returns the position of each pipeline."""
        return [s.mark() for s in self._streams]

    def to_json(self, position: Any) -> list[Any]:
        """Returns a position as JSON, for each pipeline of this worker."""
        return [r.position(p) for r, p in zip(self._readers, position, strict=True)]


def _next(stream: ElementStream) -> list[Any]:
    try:
        return [next(stream)]
    except StopIteration:
        return []


def _no_rows(plan: Node, pipelines: Pipelines) -> Any:
    """Returns a batch of no rows: as the spec of a plan says, or else as an element of any pipeline."""
    spec = spec_if_known(plan)
    if spec is not None and all(s.shape and None not in s.shape[1:] for s in jax.tree.leaves(spec)):
        return jax.tree.map(lambda s: np.empty((0, *s.shape[1:]), s.dtype), spec)
    every = [pipelines.plan_of(number) for number in range(pipelines.count)]
    element = next((e for e in map(example_of, every) if e is not None), None)
    if element is not None:
        return jax.tree.map(lambda a: np.atleast_1d(a)[:0], element)
    if all(p.replayable for p in every):  # There is no example at all.
        return ()
    raise InputError(
        "A task without any data needs to know what the others' batches look like. Received: a dataset that only tells "
        "by its elements. Give from_generator an output_signature."
    )


def _batches_of(block: Block) -> list[Block] | None:
    """Returns the elements of each batch, or `None` if they are put together in another way."""
    store = block.store
    if not isinstance(store, StackedStore) or store.padding is not None:
        return None
    return [store.batch(int(row)) for row in block.rows]
