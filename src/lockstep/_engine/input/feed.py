"""Epochs of global batches on the replicas."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Generator, Iterator
from typing import Any

from lockstep._engine.input import random_state, samples
from lockstep._engine.input.batch import Marked, unmarked
from lockstep._engine.input.position import VERSION, Marks, demand_same, rows_of
from lockstep._engine.input.reader import Reader
from lockstep._engine.input.samples import Sample
from lockstep._engine.input.source import Source
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import DeviceBatch
from lockstep._engine.step.protocol import Program
from lockstep._engine.step.steps_per_execution import group_batches

_numbers = itertools.count()


class Feed:
    """Gives the loop the batches of one epoch after another, in chunks of as many as the program takes together.

    Without `steps_per_epoch` an epoch is one pass over the data. With it an epoch is so many batches, and the next
    one continues where the last one ended; a pass that ends in the middle ends the epoch with a warning.

    Args:
        source: The global batches on the host.
        program: Which step program they are for.
        runtime: Who takes part.
        steps_per_epoch: Batches of an epoch, or `None`.
        at_most: Whether `steps_per_epoch` is a limit only, and data may end before.
    """

    def __init__(
        self,
        source: Source,
        program: Program,
        runtime: Runtime,
        steps_per_epoch: int | None,
        at_most: bool = False,
    ) -> None:
        self.source = source
        self._program = program
        self._marks = Marks()
        self._placer = _Placer(program, self._marks)
        self._runtime = runtime
        self.steps_per_epoch = steps_per_epoch
        # One name per feed and epoch: the tasks make the same feeds in the same order.
        self._name = f"feed-{next(_numbers)}"
        self._epochs = 0
        self._pass: Iterator[Any] | None = None
        self._known = source.num_batches
        # Batches of the open pass that were handed out: by now, and before this epoch.
        self._seen = self._seen_before = 0
        # Batches of this epoch, and of the next one, that were used before training was interrupted.
        self._offset = self._resumed = 0
        self._in_epoch = False
        self._at_most = at_most
        self._reader: Reader | None = None
        self._is_decided = False
        self.exhausted = False

    def ask(self, word: str) -> None:
        """Has all tasks be told a word after the same one of the next batches of this epoch."""
        if self._reader is not None:
            self._reader.ask(word)

    def told(self, word: str) -> bool:
        """Whether all tasks have been told a word, which is then forgotten."""
        words = self._reader.told if self._reader is not None else set[str]()
        is_told = word in words
        words.discard(word)
        return is_told

    @property
    def num_batches(self) -> int | None:
        """Batches of an epoch, if known."""
        return self.steps_per_epoch or self._known

    def facts(self) -> dict[str, Any]:
        """Returns what must be equal on all tasks before the first batch; readers compare the rest as they go."""
        found = self.source.held
        batches = None if found is None else self.num_batches
        facts = {"kind": self.source.kind, "steps": self.steps_per_epoch, "batches per epoch": batches}
        return facts if found is None else {**facts, **found.facts()}

    def sample(self, number: int) -> Sample | None:
        """Returns a sample of arrays in memory, which no reader compares; another one for each number."""
        held = self.source.held
        return held.sample(number) if held is not None and samples.are_compared(self._runtime) else None

    def position(self, taken: int = 0, together: bool = True) -> dict[str, Any] | None:
        """Returns where the data stand, as JSON that is good for any number of workers.

        Args:
            taken: How many batches of the epoch that is open were used.
            together: Whether all tasks call it at the same time; where the position is in the pipelines of each, they
                must.

        Returns:
            The position, or `None` if only all tasks together know it.
        """
        if not together and not self._runtime.is_alone:
            return None
        seen = self._seen_before + taken - self._offset if self._in_epoch else self._seen
        is_open = self._pass is not None
        return {
            "version": VERSION,
            "kind": self.source.kind,
            "batches": seen,
            "taken": taken if self._in_epoch else self._resumed,
            "rows": self._placer.rows,
            "known": self._known,
            "exhausted": self.exhausted,
            "decision": self._program.decision(),
            "pass": self.source.saved(self._marks.after(seen)) if is_open else None,
            "next": None if is_open else self.source.between(),
        }

    def resume(self, position: dict[str, Any]) -> None:
        """Goes to a position, before the first epoch; all tasks call it with the same one.

        Raises:
            CheckpointError, ArgumentError: If it is not one of these data.
        """
        demand_same("the version of the position", position["version"], VERSION)
        demand_same("what is read", position["kind"], self.source.kind)
        self._known = position["known"] if self._known is None else self._known
        self.exhausted = position["exhausted"]
        self._placer.rows = position["rows"]
        self._is_decided = self._program.follow(position["decision"])
        self._resumed = position["taken"]
        if position["pass"] is None:
            self.source.follow(position["next"])
            self._pass = iter(()) if self.exhausted else None
            return
        self._seen = position["batches"]
        self._pass = self.source.resume_pass(position["pass"], self._seen, position["rows"])
        self._marks.begin(self._seen, self.source.start)

    def rewind(self) -> None:
        """Has the data begin at the beginning of a pass, after `resume` has failed."""
        self._pass, self._seen, self._resumed = None, 0, 0

    @contextlib.contextmanager
    def epoch(self, state: Any) -> Generator[Iterator[DeviceBatch]]:
        """Opens the next epoch: an iterator of `DeviceBatch` chunks.

        Args:
            state: What the steps change; its shapes and types matter only.
        """
        self._begin(state)
        batches = self._count()
        self._offset, self._resumed, self._in_epoch = self._resumed, 0, True
        is_whole = False
        try:
            yield batches
            is_whole = True
        finally:
            self._in_epoch = False
            batches.close()
            if self.steps_per_epoch is None or self._seen == self._known:
                self._end_pass(together=is_whole)

    def _begin(self, state: Any) -> None:
        if self._pass is None:
            self._pass = self.source.begin_pass()
            self._seen, self._placer.rows = 0, None
            self._marks.begin(0, self.source.start)
        self._seen_before = self._seen
        if not self._is_decided:
            self._is_decided = True
            first, self._pass = _with_first(self._pass)
            self._program.decide(state, None if first is None else self._program.prepare(unmarked(first)))

    def _end_pass(self, together: bool = True) -> None:
        """Ends the pass; `together` unless an error ends it, which the other tasks may not have."""
        if self._pass is not None:
            if together and self.source.draws_at_end:
                random_state.follow_chief(self._runtime, "the end of a pass over the data")
            self.source.end_pass()
        self._pass = None

    def _count(self) -> Generator[Any]:
        taken = self._offset
        left = None if self.steps_per_epoch is None else max(0, self.steps_per_epoch - taken)
        with contextlib.closing(self._placed(left)) as placed:
            for chunk in placed:
                self._marks.forget(self._seen)
                taken += chunk.steps
                self._seen += chunk.steps
                yield chunk
        self._ended(taken)

    def _ended(self, taken: int) -> None:
        """The data ended this epoch, or it is complete."""
        if self.steps_per_epoch is None or taken < self.steps_per_epoch:
            if self._known is None:
                self._known = self._seen
            self._end_pass()
            self.exhausted = self.source.single_pass
        if self.steps_per_epoch is not None and taken < self.steps_per_epoch and not self._at_most:
            self._warn_interrupted()

    def _placed(self, limit: int | None) -> Generator[DeviceBatch]:
        assert self._pass is not None
        if self.source.in_memory:
            prepared = map(self._placer.prepare, itertools.islice(self._pass, limit))
            yield from map(self._placer.place, group_batches(prepared, self._placer.chunk_capacity))
            return
        self._epochs += 1
        channel = self._runtime.channel(f"{self._name}-{self._epochs}")
        self._reader = Reader(self._pass, limit, self._placer, self._runtime, channel, self._seen)
        with contextlib.closing(self._reader):
            yield from self._reader

    def _warn_interrupted(self) -> None:
        if self._runtime.is_chief:
            warnings.warn(
                "Your input ran out of data; interrupting training. Make sure that your dataset or generator can "
                "generate at least `steps_per_epoch * epochs` batches. You may need to use the `.repeat()` function "
                "when building your dataset.",
                stacklevel=2,
            )


class _Placer:
    """Places batches for a step program, which does not need to know their position in the data.

    Args:
        program: The step program.
        marks: Is told the position after each batch.

    Attributes:
        rows: How many rows the first batch of the pass has.
    """

    def __init__(self, program: Program, marks: Marks) -> None:
        self._program = program
        self._marks = marks
        self.chunk_capacity, self.place = program.chunk_capacity, program.place
        self.rows: int | None = None

    def prepare(self, batch: Any) -> Any:
        """Makes of a batch what is to be placed; they come in order."""
        found = unmarked(batch)
        self._marks.add(batch.mark if isinstance(batch, Marked) else None)
        if self.rows is None:
            self.rows = rows_of(found)
        return self._program.prepare(found)


def _with_first(batches: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """Returns the first batch, or `None`, and an iterator that still has it; what goes wrong goes wrong there."""
    try:
        first = next(batches)
    except StopIteration:
        return None, iter(())
    except Exception as error:
        return None, _raising(error)
    return first, itertools.chain([first], batches)


def _raising(error: Exception) -> Iterator[Any]:
    raise error
    yield
