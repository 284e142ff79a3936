"""Epochs of global batches on the replicas."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Generator, Iterator
from typing import Any

from lockstep._engine.input import random_state, samples
from lockstep._engine.input.batch import (
    VERSION,
    Position,
    PositionsInFlight,
    WithPosition,
    check_same,
    row_count,
    unwrap,
)
from lockstep._engine.input.reader import Reader
from lockstep._engine.input.samples import Sample
from lockstep._engine.input.source import Source
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import DeviceBatch, group_batches
from lockstep._engine.step.protocol import Program
from lockstep._types import State

_numbers = itertools.count()


class Feed:
    """Iterates over the batches of one epoch after another, in chunks of as many as the program takes in one dispatch.

    Without `steps_per_epoch` an epoch is one pass over the data. With it an epoch is so many batches, and the next
    one continues where the last one ended; a pass that ends in the middle ends the epoch with a warning.

    Args:
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
        self.steps_per_epoch = steps_per_epoch
        self._program = program
        self._runtime = runtime
        self._at_most = at_most
        self._in_flight = PositionsInFlight()
        self._placer = _Placer(program, self._in_flight)
        # One name per feed and epoch: all workers make the same feeds in the same order.
        self._name = f"feed-{next(_numbers)}"
        self._epochs = 0
        self._position = Position(pass_length=source.num_batches)
        # The iterator over the open pass.
        self._pass: Iterator[Any] | None = None
        self._reader: Reader | None = None
        self._is_decided = False

    # ---- What workers exchange ----

    def broadcast(self, message: str) -> None:
        """Sends a control message that all workers receive after the same one of the next batches of this epoch."""
        if self._reader is not None:
            self._reader.broadcast(message)

    def has_received(self, message: str) -> bool:
        """Returns whether all workers have received a control message, and drops it."""
        received = self._reader.received if self._reader is not None else set[str]()
        is_there = message in received
        received.discard(message)
        return is_there

    def facts(self) -> dict[str, Any]:
        """Returns what must be equal on all workers before the first batch; readers compare the rest as they go."""
        held = self.source.held
        batches = None if held is None else self.num_batches
        facts = {"kind": self.source.kind, "steps": self.steps_per_epoch, "batches per epoch": batches}
        return facts if held is None else {**facts, **held.facts()}

    def sample(self, number: int) -> Sample | None:
        """Returns a sample of arrays in memory, which no reader compares; another one for each number."""
        held = self.source.held
        return held.sample(number) if held is not None and samples.are_compared(self._runtime) else None

    # ---- The position ----

    @property
    def num_batches(self) -> int | None:
        """Returns the number of batches of an epoch, if known."""
        return self.steps_per_epoch or self._position.pass_length

    @property
    def exhausted(self) -> bool:
        """Returns whether data that can be read once have ended."""
        return self._position.exhausted

    def position(self, steps: int = 0) -> dict[str, Any]:
        """Returns where the data stand, as JSON that is good for any number of workers; a collective call.

        Args:
            steps: How many batches of the epoch that is open were trained on.
        """
        position = self._position
        used = position.after_steps(steps)
        is_open = self._pass is not None
        return {
            "version": VERSION,
            "kind": self.source.kind,
            "batches": used,
            "taken": steps if position.in_epoch else position.skipped,
            "rows": self._placer.rows,
            "known": position.pass_length,
            "exhausted": position.exhausted,
            "decision": self._program.decision(),
            "pass": self.source.saved_position(self._in_flight.after(used)) if is_open else None,
            "next": None if is_open else self.source.between(),
        }

    def resume(self, saved: dict[str, Any]) -> None:
        """Goes to a position, before the first epoch; all workers call it with the same one.

        Raises:
            CheckpointError, ArgumentError: If it is not one of these data.
        """
        check_same("the version of the position", saved["version"], VERSION)
        check_same("what is read", saved["kind"], self.source.kind)
        length = self._position.pass_length
        is_open = saved["pass"] is not None
        self._position = Position(
            batches=saved["batches"] if is_open else self._position.batches,
            skipped=saved["taken"],
            pass_length=saved["known"] if length is None else length,
            exhausted=saved["exhausted"],
        )
        self._placer.rows = saved["rows"]
        self._is_decided = self._program.follow(saved["decision"])
        if not is_open:
            self.source.follow(saved["next"])
            # A generator that has ended is not begun again.
            self._pass = iter(()) if saved["exhausted"] else None
            return
        self._pass = self.source.resume_pass(saved["pass"], saved["batches"], saved["rows"])
        self._in_flight.begin(saved["batches"], self.source.start)

    def rewind(self) -> None:
        """Goes to the beginning of a pass, after `resume` has failed."""
        self._pass, self._position = None, self._position.rewind()

    # ---- Epochs ----

    @contextlib.contextmanager
    def epoch(self, state: State) -> Generator[Iterator[DeviceBatch]]:
        """Opens the next epoch: an iterator of `DeviceBatch` chunks.

        Args:
            state: The state that steps change; only its shapes and dtypes matter.
        """
        if self._pass is None:
            self._pass = self.source.begin_pass()
            self._position, self._placer.rows = self._position.begin_pass(), None
            self._in_flight.begin(0, self.source.start)
        # Once: all workers decide together, and the decision is part of a position.
        if not self._is_decided:
            self._is_decided = True
            first, self._pass = _peek(self._pass)
            self._program.decide(state, None if first is None else self._program.prepare(unwrap(first)))
        batches = self._iterate()
        self._position = self._position.begin_epoch()
        is_whole = False
        try:
            yield batches
            is_whole = True
        finally:
            self._position = self._position.end_epoch()
            # Ends the reader's thread before the pass, which it reads.
            batches.close()
            # Without steps_per_epoch each epoch begins a pass, also after one that the loop has left early.
            if self.steps_per_epoch is None or self._position.batches == self._position.pass_length:
                self._end_pass(is_whole)

    def _iterate(self) -> Generator[DeviceBatch]:
        """Yields the chunks of an epoch."""
        done, limit = self._position.skipped, self.steps_per_epoch
        with contextlib.closing(self._place(None if limit is None else max(0, limit - done))) as chunks:
            for chunk in chunks:
                self._in_flight.forget(self._position.batches)
                done += chunk.steps
                self._position = self._position.advance(chunk.steps)
                yield chunk
        if limit is not None and done >= limit:
            return
        self._position = self._position.end_pass(self.source.single_pass)
        self._end_pass()
        if limit is not None and not self._at_most and self._runtime.is_chief:
            warnings.warn(
                "Your input ran out of data; interrupting training. Make sure that your dataset or generator can "
                "generate at least `steps_per_epoch * epochs` batches. You may need to use the `.repeat()` function "
                "when building your dataset.",
                stacklevel=2,
            )

    def _place(self, limit: int | None) -> Generator[DeviceBatch]:
        """Yields chunks of at most `limit` batches of the open pass."""
        assert self._pass is not None
        if self.source.in_memory:
            # Nothing to read ahead, and nothing that could fail on one worker alone.
            prepared = map(self._placer.prepare, itertools.islice(self._pass, limit))
            yield from map(self._placer.place, group_batches(prepared, self._placer.chunk_capacity))
            return
        self._epochs += 1
        channel = self._runtime.channel(f"{self._name}-{self._epochs}")
        self._reader = Reader(self._pass, limit, self._placer, self._runtime, channel, self._position.batches)
        with contextlib.closing(self._reader):
            yield from self._reader

    def _end_pass(self, together: bool = True) -> None:
        """Ends the pass; `together` unless an error ends it, which the other workers may not have."""
        if self._pass is not None:
            # PyDataset.on_epoch_end often shuffles with the global generators.
            if together and self.source.draws_at_end:
                random_state.follow_chief(self._runtime, "the end of a pass over the data")
            self.source.end_pass()
        self._pass = None


class _Placer:
    """Places batches for a step program, which need not know their position in the data.

    Called on the reader's thread, which is ahead of the loop.

    Args:
        in_flight: Takes the position after each batch.

    Attributes:
        rows: How many rows the first batch of the pass has.
    """

    def __init__(self, program: Program, in_flight: PositionsInFlight) -> None:
        self._program = program
        self._in_flight = in_flight
        self.chunk_capacity, self.place = program.chunk_capacity, program.place
        self.rows: int | None = None

    def prepare(self, batch: Any) -> Any:
        """Returns a batch ready to be placed; they come in order."""
        plain = unwrap(batch)
        self._in_flight.add(batch.position if isinstance(batch, WithPosition) else None)
        if self.rows is None:
            self.rows = row_count(plain)
        return self._program.prepare(plain)


def _peek(batches: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """Returns the first batch, or `None`, and an iterator that still has it, or raises the error that it raised."""
    try:
        first = next(batches)
    except StopIteration:
        return None, iter(())
    except Exception as error:
        return None, _raise(error)
    return first, itertools.chain([first], batches)


def _raise(error: Exception) -> Iterator[Any]:
    raise error
    yield
