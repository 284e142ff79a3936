"""Datasets among the tasks: each computes what it needs of every global batch, or adds what its own part gives.

*Followed*: all tasks go through the same plan, by reference; each computes its rows of a batch. The global batches are
those of a single task.

*Combined*: the data is in several pipelines, at first one per task, and a global batch is what they give together. A
job that goes on with another number of tasks keeps the pipelines: each task takes its share of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.batch import Marked
from lockstep._engine.input.origins import samples_of
from lockstep._engine.input.resident import Residents, batches_of
from lockstep._engine.step.batches import EvenShard, RaggedShard
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

# Which rows of a batch of so many this task computes; `None` for all of them.
Rows = Callable[[int], slice | None]


def everything(data: Any) -> Any:
    """Returns `data`."""
    return data


@dataclass(frozen=True)
class Need:
    """What a task needs of batches.

    Attributes:
        rows: Which rows.
        finish: What to make of computed rows.
        residents: The data on the devices, or `None` for batches on the host.
    """

    rows: Rows = lambda count: None
    finish: Callable[[Any], Any] = everything
    residents: Residents | None = None

    def __call__(self, block: Block) -> list[Any]:
        """Computes it for a block of batches."""
        return self._looked_up(block) or [self._finished(portion) for portion in portions(block, self.rows)]

    def _looked_up(self, block: Block) -> list[Any] | None:
        """The batches as rows on the devices, if all their data is there."""
        batches = None if self.residents is None else batches_of(block)
        if self.residents is None or batches is None:
            return None
        return self.residents.lookups(batches, self.finish)

    def _finished(self, portion: Any) -> Any:
        if isinstance(portion, EvenShard):
            return EvenShard(self.finish(portion.data), portion.count)
        return self.finish(portion)


class Followed:
    """Batches of a plan that all tasks go through.

    Args:
        plan: Gives global batches.
        run: Which pass.
        need: What this task needs of them.
        position: Where to continue, or `None` for the beginning.
        threads: How many compute elements at most; 0 for one per core.
        compares: Whether batches come with samples of what they are made of.
    """

    def __init__(
        self, plan: Node, run: Run, need: Need, position: Any = None, threads: int = 0, compares: bool = False
    ) -> None:
        self._pulled = PlanReader(plan, run) if position is None else open_at(plan, position)
        self._computed = ElementStream(self._pulled, _with_samples(need, compares), threads or _pool.cores())

    def __iter__(self) -> Iterator[Marked]:
        return self

    def __next__(self) -> Marked:
        batch, sample = next(self._computed)
        return Marked(batch, self._computed.mark(), sample)

    def mark(self) -> Any:
        """Returns the position after the last batch."""
        return self._computed.mark()

    def position(self, mark: Any) -> Any:
        """Returns a mark for JSON."""
        return self._pulled.position(mark)


def _with_samples(need: Need, compares: bool) -> Callable[[Block], list[Any]]:
    """Returns a function that computes what is needed of batches, each with a sample of the whole one, or `None`."""

    def compute(block: Block) -> list[Any]:
        samples = samples_of(block) if compares else [None] * len(block)
        return list(zip(need(block), samples, strict=True))

    return compute


def portions(block: Block, rows: Rows) -> list[Any]:
    """Computes this task's rows of each batch: a `EvenShard`, or all if `rows` says so."""
    store = block.store
    if not isinstance(store, StackedStore) or store.padding is not None:
        return [_cut(element, rows) for element in elements_of(block)]
    batches = [store.batch(int(row)) for row in block.rows]
    wanted = [rows(len(batch)) for batch in batches]
    if all(w is None for w in wanted):
        return elements_of(block)
    return [_share(batch, w) for batch, w in zip(batches, wanted, strict=True)]


def _share(batch: Block, wanted: slice | None) -> Any:
    if wanted is None:
        return _stacked(batch)
    part = batch[wanted]
    if len(part):
        return EvenShard(_stacked(part), len(batch))
    # Of no rows, their shapes and dtypes.
    return EvenShard(jax.tree.map(lambda a: a[:0], _stacked(batch[:1])), len(batch))


def _stacked(block: Block) -> Any:
    """Computes elements as one batch."""
    return StackedStore(block, len(block), None).element(0)


def _cut(element: Any, rows: Rows) -> Any:
    lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(element)}
    count = lengths.pop() if len(lengths) == 1 else ()
    if not count or (wanted := rows(count[0])) is None:
        return element
    return EvenShard(jax.tree.map(lambda a: a[wanted], element), count[0])


@dataclass(frozen=True)
class Pipelines:
    """What several pipelines give together.

    Attributes:
        count: How many there are.
        plan_of: Returns the plan of one.
        together: How many elements of each belong to one global batch.
    """

    count: int
    plan_of: Callable[[int], Node]
    together: int = 1

    def of_task(self, task: int, tasks: int) -> range:
        """The pipelines of a task: neighbours, so that the order of rows does not depend on the tasks."""
        return range(task * self.count // tasks, (task + 1) * self.count // tasks)


class Combined:
    """Parts of the batches that several pipelines give together, of this task.

    Args:
        pipelines: All of them.
        run: Which pass.
        task: This task's number among `tasks`.
        tasks: How many tasks there are.
        need: What to make of computed rows.
        positions: Of all pipelines, where to continue; or `None`.
        threads: How many compute elements at most; 0 for one per core.
    """

    def __init__(
        self,
        pipelines: Pipelines,
        run: Run,
        task: int,
        tasks: int,
        need: Need,
        positions: Sequence[Any] | None = None,
        threads: int = 0,
    ) -> None:
        self._pipelines = pipelines
        self._finish = need.finish
        self._is_alone = tasks == 1
        mine = pipelines.of_task(task, tasks)
        self._plans = [pipelines.plan_of(i) for i in mine]
        self._pulled = [
            PlanReader(plan, run.for_input(i)) if positions is None else open_at(plan, positions[i])
            for i, plan in zip(mine, self._plans, strict=True)
        ]
        # One pipeline that one task reads gives the batches themselves, which need not be put together.
        self._is_only = tasks == pipelines.count == pipelines.together == 1
        compute = need if self._is_only else elements_of
        self._computed = [ElementStream(p, compute, threads or _pool.cores()) for p in self._pulled]
        self._nothing: Any = None

    def __iter__(self) -> Iterator[Marked]:
        return self

    def __next__(self) -> Marked:
        if self._is_only:
            return Marked(next(self._computed[0]), self.mark())
        elements = self._next_elements()
        if not elements and self._is_alone:
            raise StopIteration
        data = self._finish(_rows_together(elements)) if elements else self._no_batch()
        return Marked(data if self._is_alone else RaggedShard(data), self.mark())

    def _next_elements(self) -> list[Any]:
        """The next elements of each pipeline; none when all have ended."""
        return [e for c in self._computed for _ in range(self._pipelines.together) for e in _next(c)]

    def mark(self) -> Any:
        """Returns the position of each pipeline."""
        return [c.mark() for c in self._computed]

    def position(self, mark: Any) -> list[Any]:
        """Returns a mark for JSON, for each pipeline of this task."""
        return [p.position(m) for p, m in zip(self._pulled, mark, strict=True)]

    def _no_batch(self) -> Any:
        """A batch of no rows: a task without data still takes part in the others' steps."""
        if self._nothing is None:
            self._nothing = self._finish(_no_rows(self._plans or [self._pipelines.plan_of(0)], self._pipelines))
        return self._nothing


def _next(computed: ElementStream) -> list[Any]:
    try:
        return [next(computed)]
    except StopIteration:
        return []


def _rows_together(elements: list[Any]) -> Any:
    if len(elements) == 1:
        return elements[0]
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *elements)


def _no_rows(plans: Sequence[Node], pipelines: Pipelines) -> Any:
    """What a batch looks like without rows: as the specs say, or else as an element of any pipeline."""
    spec = spec_if_known(plans[0])
    if spec is not None and all(s.shape and None not in s.shape[1:] for s in jax.tree.leaves(spec)):
        return jax.tree.map(lambda s: np.empty((0, *s.shape[1:]), s.dtype), spec)
    every = [pipelines.plan_of(number) for number in range(pipelines.count)]
    element = next((e for e in map(example_of, every) if e is not None), None)
    if element is not None:
        return jax.tree.map(lambda a: np.asarray(a)[:0], element)
    if all(plan.replayable for plan in every):  # There is no example at all.
        return ()
    raise InputError(
        "A task without any data needs to know what the others' batches look like. Received: a dataset that only tells "
        "by its elements. Give from_generator an output_signature."
    )
