"""Keeps the state of a job with parameter servers on its chief: the calls so far, and the error that ends it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep._engine.servers.messages import Array, Message
from lockstep._engine.servers.tickets import TicketBook
from lockstep.errors import LockstepError

Report = Mapping[str, Array]


@dataclass(frozen=True)
class Epoch:
    """An epoch as the chief has begun it.

    Attributes:
        epoch: Its number.
        first_batch: The first of its batches that is trained on.
        batches: The number of its batches, if it is known.
        first_ticket: The ticket of `first_batch`.
        extra: Facts that the chief gives to all, such as the position of the data; JSON.
        serial: Counts the epochs that were begun in this call, also those that a rollback has begun again.
        generation: The generation of the servers' state that it was begun in.
    """

    epoch: int
    first_batch: int
    batches: int | None
    first_ticket: int
    extra: Any
    serial: int
    generation: int


@dataclass
class CallRecord:
    """A call of the sequence that all tasks make.

    Attributes:
        number: Its number.
        kind: The method.
        facts: What is equal on all tasks.
        book: Its tickets.
        opened: What the chief has opened the servers with, once it has.
        epoch: The epoch that was begun last.
        reports: By ticket and share: what tasks have reported, until the chief takes it.
        result: What the call has ended with, once it has.
    """

    number: int
    kind: str
    facts: Any
    book: TicketBook = field(default_factory=TicketBook)
    opened: Message | None = None
    epoch: Epoch | None = None
    reports: dict[int, dict[int, Report]] = field(default_factory=dict[int, dict[int, Report]])
    result: Message | None = None


class JobState:
    """The state of a job. Whoever reads or changes it holds `changed`, and calls `notify` after a change.

    Args:
        clock: Returns seconds.

    Attributes:
        id: Differs for each process that is the chief: by it tasks see that it was started again.
        changed: The lock, and the condition that ends waits for calls, epochs and tasks.
        tickets: The condition of the same lock that ends waits for tickets. Those change several times a step, which
            must not wake whoever waits for the end of the call.
        clock: Returns seconds.
        generation: The generation of the servers' state.
        calls: The calls so far.
        error: What ends the job, if anything does.
        has_ended: Whether the chief's program has ended: nobody waits for another call.
        needs_servers: Whether a task may still push or pull: a worker may compute what others have done for it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.id = secrets.token_hex(8)
        lock = threading.RLock()
        self.changed, self.tickets = threading.Condition(lock), threading.Condition(lock)
        self.clock = clock
        self.generation = 0
        self.calls: list[CallRecord] = []
        self.error: LockstepError | None = None
        self.has_ended = False
        self.needs_servers = True

    @property
    def current(self) -> CallRecord:
        """The call that was begun last."""
        return self.calls[-1]

    def end_by(self, error: LockstepError) -> None:
        """Ends the job with an error, unless another has come first."""
        self.error = self.error or error
        self.notify()

    def notify(self) -> None:
        """Ends all waits, after a change of anything but tickets alone, of which `tickets` is notified."""
        self.changed.notify_all()
        self.tickets.notify_all()

    def note_done(self, call: CallRecord, task: str, generation: int, ticket: int, share: int, report: Report) -> bool:
        """Notes a share that is done, and what its task reports; returns whether it counts."""
        counts = call.book.done(task, generation, ticket, share, self.clock())
        if counts:
            call.reports.setdefault(ticket, {})[share] = {name: np.asarray(value) for name, value in report.items()}
            self.tickets.notify_all()
        return counts
