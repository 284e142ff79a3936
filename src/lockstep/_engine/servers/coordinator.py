"""Coordinator of a job with parameter servers: runs on the chief, and answers the other tasks.

It holds the sequence of calls (`fit`, `evaluate`, ...) that every task makes, the book of tickets of the current one,
what tasks have reported, and who is there. Tasks ask, and it answers within a second: an answer "wait" means to ask
again. So a wait ends soon after anything has changed, and both sides notice when the other has gone.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lockstep._engine.runtime import failure, fingerprint
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.messages import Array, Message, Superseded
from lockstep._engine.servers.tickets import Lease, TicketBook
from lockstep.errors import LockstepError, MismatchError, MissingTaskError, PeerError

_log = logging.getLogger("lockstep")
# An answer comes after so long at most, so that a connection that is broken is noticed.
_ANSWER_SECONDS = 1.0
_SERVER = "ps"
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
class _Peer:
    """Another task, as the coordinator knows it."""

    task: str
    incarnation: str
    seen: float
    close: Callable[[], None]
    connection: int
    is_connected: bool = True
    gone_at: float = 0.0


@dataclass
class _Call:
    """A call of the sequence."""

    number: int
    kind: str
    facts: Any
    book: TicketBook = field(default_factory=TicketBook)
    opened: Message | None = None
    epoch: Epoch | None = None
    reports: dict[int, dict[int, Report]] = field(default_factory=dict[int, dict[int, Report]])
    result: Message | None = None


class Coordinator:
    """State of a job that all its tasks share, on the chief.

    Args:
        chief: The name of the chief's task.
        servers: The names and addresses of the servers, for messages about those that are missing.
        limits: The limits of all waits.
        clock: Returns seconds.

    Attributes:
        id: Differs for each process that is the chief: by it tasks see that it was started again.
        generation: The generation of the servers' state.
    """

    def __init__(
        self,
        chief: str,
        servers: Mapping[str, str],
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.chief = chief
        self.id = secrets.token_hex(8)
        self.generation = 0
        self._servers = dict(servers)
        self._limits = limits or Limits()
        self._clock = clock
        self._changed = threading.Condition()
        self._calls: list[_Call] = []
        self._peers: dict[str, _Peer] = {}
        self._error: LockstepError | None = None
        # Servers whose process has been started again, and that have no state.
        self._empty: set[str] = set()
        self._has_ended = False
        # Workers without a program, which compute functions of the chief's `ClusterCoordinator`.
        self._serving: set[str] = set()
        self._connections = 0
        self._handlers: dict[str, Callable[[str, Message], Message]] = {
            "begin": self._begin,
            "opened": self._opened,
            "epoch": self._next_epoch,
            "lease": self._lease,
            "exhausted": self._exhausted,
            "give back": self._give_back,
            "result": self._result,
            "failed": self._failed,
            "state": self._state,
            "serves": self._serves,
        }

    # Of all tasks ----------------------------------------------------------------------------------------------------

    def arrive(self, task: str, incarnation: str) -> str | None:
        """Returns why a task cannot take part now, or `None`; `connect` then takes it in."""
        with self._changed:
            peer = self._peers.get(task)
            if task == self.chief or (peer is not None and peer.is_connected and peer.incarnation != incarnation):
                return (
                    f"Each task of a cluster runs once. Another process is {task}. Give this one an index of its own, "
                    "or stop the other one."
                )
            return None

    def connect(self, task: str, incarnation: str, close: Callable[[], None]) -> int:
        """Takes a task in; returns the number of its connection.

        Args:
            task: The task.
            incarnation: Its process: another one has nothing of what the former held.
            close: Closes its connection.
        """
        with self._changed:
            peer = self._peers.get(task)
            is_new = peer is None or peer.incarnation != incarnation
            if peer is not None and is_new and task in self._servers:
                self._empty.add(task)
            if self._calls:
                self._calls[-1].book.gone(task)  # What was on the way to it has not arrived.
            self._connections += 1
            self._peers[task] = _Peer(task, incarnation, self._clock(), close, self._connections)
            self._resume()
            self._changed.notify_all()
            _log.info("%s is there", task)
            return self._connections

    def leave(self, task: str, connection: int) -> None:
        """Notes that a task's connection has ended; its leases go back at once."""
        with self._changed:
            peer = self._peers.get(task)
            if peer is None or peer.connection != connection:
                return  # It has another one already.
            peer.is_connected, peer.gone_at = False, self._clock()
            if self._calls:
                book = self._calls[-1].book
                if count := book.gone(task):
                    _log.warning("%s has gone; its %d open batches are given to others.", task, count)
                if task in self._servers:
                    book.is_paused = True
            self._changed.notify_all()

    def disconnect(self, task: str) -> None:
        """Closes the connection of a task that has given no sign of life."""
        with self._changed:
            peer = self._peers.get(task)
        if peer is not None and peer.is_connected:
            self.leave(task, peer.connection)
            peer.close()

    def beat(self, task: str) -> None:
        """Notes a sign of life."""
        peer = self._peers.get(task)
        if peer is not None:
            peer.seen = self._clock()

    def handle(self, task: str, message: Message) -> Message:
        """Answers a request of a task, within about a second."""
        self.beat(task)
        handler = self._handlers.get(message.kind)
        if handler is None:
            return Message("error", {"error": "PeerError", "message": f"Nobody answers {message.kind!r:.40}."})
        with self._changed:
            if self._error is not None and message.kind not in ("failed", "state"):
                return Message("error", {"error": "PeerError", "message": str(self._error)})
            return handler(task, message)

    # Of the chief ----------------------------------------------------------------------------------------------------

    def begin(self, kind: str, facts: Any) -> int:
        """Begins the next call of the sequence; returns its number."""
        with self._changed:
            self._check()
            if self._calls and self._calls[-1].result is None:
                # An exception has ended the last one on the chief, which has caught it and goes on.
                self._calls[-1].result = Message("result", {"result": None})
            self._calls.append(_Call(len(self._calls), kind, facts))
            self._calls[-1].book = TicketBook(generation=self.generation)
            self._changed.notify_all()
            return len(self._calls) - 1

    def open(self, opened: Message, shares: int, staleness: int | None, first_ticket: int) -> None:
        """Gives every task what the chief has opened the servers with; tickets count from `first_ticket`."""
        with self._changed:
            call = self._current()
            call.opened = opened
            call.book = TicketBook(shares, staleness)
            call.book.roll_back(first_ticket, self.generation)
            self._changed.notify_all()

    def begin_epoch(self, epoch: int, first_batch: int, batches: int | None, extra: Any) -> Epoch:
        """Begins an epoch for all tasks."""
        with self._changed:
            self._check()
            call = self._current()
            serial = 0 if call.epoch is None else call.epoch.serial + 1
            ticket = call.book.begin_epoch(epoch, first_batch, batches)
            call.epoch = Epoch(epoch, first_batch, batches, ticket, extra, serial, self.generation)
            self._changed.notify_all()
            return call.epoch

    def end_epoch(self, batches: int) -> None:
        """Ends the current epoch after so many batches."""
        with self._changed:
            call = self._current()
            if call.epoch is not None:
                call.book.exhausted(call.epoch.epoch, batches)
            self._changed.notify_all()

    def release(self, until: int, hyper: Mapping[str, float]) -> None:
        """Allows tickets below `until` to be leased."""
        with self._changed:
            self._check()
            self._current().book.release(until, hyper)
            self._changed.notify_all()

    def try_lease(self, task: str, first: int, last: int | None) -> Lease | None:
        """Leases a share to the chief itself, or returns `None`."""
        with self._changed:
            self._check()
            return self._current().book.lease(task, self._clock(), first, last)

    def done(self, task: str, lease: Lease, report: Report) -> bool:
        """Notes a share that is done, and what its task reports; returns whether it counts."""
        with self._changed:
            return self._note(self._current(), task, lease.generation, lease.ticket, lease.share, report)

    def wait(self, ticket: int, seconds: float) -> list[Report] | None:
        """Waits up to `seconds` until a ticket is done; returns its shares' reports in order, else `None`.

        Raises:
            Superseded: If a server has lost its state: `Call.recover` brings it back.
            PeerError: If a task has failed for good.
            MissingTaskError: If a server has been away for longer than the limit.
        """
        end = self._clock() + seconds
        with self._changed:
            while True:
                self._check()
                call = self._current()
                if call.book.is_done(ticket):
                    reports = call.reports.pop(ticket, {})
                    return [reports[share] for share in sorted(reports)]
                left = end - self._clock()
                if left <= 0:
                    return None
                self._changed.wait(min(left, _ANSWER_SECONDS))

    def is_quiet(self, step: int) -> bool:
        """Returns whether a cut can be made before ticket `step`."""
        with self._changed:
            self._check()
            return self._current().book.is_quiet(step)

    def applied(self) -> int:
        """Returns the number of tickets that are done without a gap."""
        with self._changed:
            return self._current().book.applied

    def roll_back(self, ticket: int, generation: int) -> None:
        """Begins a new generation, in which exactly the tickets below `ticket` are done."""
        with self._changed:
            self.generation = generation
            self._empty.clear()
            call = self._current()
            call.book.roll_back(ticket, generation)
            call.book.is_paused = False
            call.reports.clear()
            self._changed.notify_all()

    def end(self, result: Message) -> None:
        """Ends the current call with the result that all tasks return."""
        with self._changed:
            call = self._current()
            call.result = result
            call.reports.clear()
            self._changed.notify_all()

    def end_job(self) -> None:
        """Notes that the chief's program has ended: nobody waits for another call."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raises what ends the chief's call: see `wait`."""
        with self._changed:
            self._check()

    def wait_for_servers(self, seconds: float) -> None:
        """Waits until all servers are there.

        Raises:
            MissingTaskError: If some are not, after `seconds`.
            PeerError: If a task has failed for good.
        """
        end = self._clock() + seconds
        with self._changed:
            while missing := self._missing_servers():
                if self._error is not None:
                    raise self._error
                if self._clock() > end:
                    raise MissingTaskError(self._missing_text(missing, seconds))
                self._changed.wait(_ANSWER_SECONDS)

    def peers(self) -> list[str]:
        """Returns the tasks that are there."""
        with self._changed:
            return [name for name, peer in self._peers.items() if peer.is_connected]

    def workers(self, seconds: float) -> tuple[list[str], list[str]]:
        """Waits up to `seconds` for a worker; returns those that are there, without and with a program."""
        end = self._clock() + seconds
        with self._changed:
            while True:
                here = [n for n, p in self._peers.items() if p.is_connected and n not in self._servers]
                left = end - self._clock()
                if here or left <= 0:
                    return [n for n in here if n in self._serving], [n for n in here if n not in self._serving]
                self._changed.wait(min(left, _ANSWER_SECONDS))

    def wait_until_left(self, seconds: float) -> list[str]:
        """Waits until all other tasks that give signs of life have ended; returns those that have not in `seconds`."""
        end = self._clock() + seconds

        def is_here(peer: _Peer) -> bool:
            return peer.is_connected and self._clock() - peer.seen <= self._limits.silence

        with self._changed:
            while (here := [n for n, p in self._peers.items() if is_here(p)]) and self._clock() < end:
                self._changed.wait(min(_ANSWER_SECONDS, max(0.0, end - self._clock())))
            return here

    def look_for_silence(self) -> list[str]:
        """Returns the connected tasks without a sign of life for longer than the limit."""
        now = self._clock()
        with self._changed:
            return [
                name
                for name, peer in self._peers.items()
                if peer.is_connected and now - peer.seen > self._limits.silence
            ]

    def fail(self, error: LockstepError) -> None:
        """Ends the job: every task's next request, and the chief's next call, raises this error."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------------------------------

    def _current(self) -> _Call:
        return self._calls[-1]

    def _check(self) -> None:
        """Raises what ends the chief's call."""
        if self._error is not None:
            raise self._error
        if self._empty and not self._missing_servers():
            raise Superseded(f"{', '.join(sorted(self._empty))} has started again")
        now = self._clock()
        for task in self._servers:
            peer = self._peers.get(task)
            if peer is not None and not peer.is_connected and now - peer.gone_at > self._limits.join:
                raise MissingTaskError(self._missing_text([task], self._limits.join))

    def _missing_servers(self) -> list[str]:
        return [t for t in self._servers if t not in self._peers or not self._peers[t].is_connected]

    def _missing_text(self, missing: list[str], seconds: float) -> str:
        names = ", ".join(f"{task} ({self._servers[task]})" for task in missing)
        return (
            f"Every server must be there within {seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). Missing: {names}. Start the "
            "missing tasks, or check that they can reach the chief and have the same cluster in TF_CONFIG."
        )

    def _resume(self) -> None:
        """Leases go on once all servers are there, and none of them has lost its state."""
        if self._calls and not self._empty and not self._missing_servers():
            self._calls[-1].book.is_paused = False

    def _wait_until(self, message: Message, is_ready: Callable[[], bool]) -> bool:
        end = self._clock() + min(float(message.facts.get("seconds", 0.0)), _ANSWER_SECONDS)
        while not is_ready():
            left = end - self._clock()
            if left <= 0 or self._error is not None:
                return False
            self._changed.wait(left)
        return True

    def _call_of(self, message: Message) -> _Call | None:
        number = message.facts.get("call")
        return self._calls[number] if isinstance(number, int) and 0 <= number < len(self._calls) else None

    def _await_call(self, message: Message) -> _Call | None:
        """Returns the call of a request, which a chief that was started again may not have reached yet."""
        self._wait_until(message, lambda: self._call_of(message) is not None or self._has_ended)
        return self._call_of(message)

    def _answer(self, call: _Call | None, status: str, **facts: Any) -> Message:
        """Returns an answer with the state of the call, which every answer tells."""
        if call is not None and call is self._calls[-1]:
            facts |= {
                "serial": -1 if call.epoch is None else call.epoch.serial,
                "epoch over": call.epoch is not None and call.book.is_over(call.epoch.epoch),
            }
        is_over = self._has_ended or (call is not None and (call.result is not None or call is not self._calls[-1]))
        return Message(status, {**facts, "generation": self.generation, "over": is_over, "job": self.id})

    def _begin(self, task: str, message: Message) -> Message:
        number, kind, facts = (message.facts.get(name) for name in ("call", "kind", "facts"))
        if not isinstance(number, int) or number < 0:
            return Message("error", {"error": "PeerError", "message": "A call has a number."})
        if not self._wait_until(message, lambda: number < len(self._calls) or self._has_ended):
            return self._answer(None, "wait", waits="the chief's call")
        if number >= len(self._calls):
            return self._answer(None, "ended")
        call = self._calls[number]
        found = fingerprint.first_difference([[call.kind, call.facts], [kind, facts]], [self.chief, task])
        if found:
            text = f"All tasks must make the same calls with the same arguments. Call {number} differs. {found}."
            return Message("error", {"error": "MismatchError", "message": text})
        return self._answer(call, "begun")

    def _opened(self, task: str, message: Message) -> Message:
        del task
        call = self._await_call(message)
        if call is None or not self._wait_until(message, lambda: call.opened is not None or call.result is not None):
            return self._answer(call, "wait")
        if call.opened is None:
            return self._answer(call, "ended")
        answer = self._answer(call, "opened")
        return replace(answer, facts={**call.opened.facts, **answer.facts}, arrays=call.opened.arrays)

    def _next_epoch(self, task: str, message: Message) -> Message:
        del task
        call, after = self._await_call(message), message.facts.get("after", -1)

        def is_ready() -> bool:
            assert call is not None
            is_begun = call.epoch is not None and call.epoch.serial > after
            return is_begun or call.result is not None or call is not self._calls[-1]

        if call is None or not self._wait_until(message, is_ready):
            return self._answer(call, "wait")
        if call.result is not None or call.epoch is None or call is not self._calls[-1]:
            return self._answer(call, "ended")
        e = call.epoch
        values = [e.epoch, e.first_batch, e.batches, e.first_ticket, e.extra, e.serial, e.generation]
        return self._answer(call, "epoch", epoch=values)

    def _lease(self, task: str, message: Message) -> Message:
        call = self._call_of(message)
        if call is None or call is not self._calls[-1]:
            return self._answer(call, "ended")
        for number, (generation, ticket, share, names) in enumerate(message.facts.get("done", [])):
            report = {name: message.arrays[f"{number}/{name}"] for name in names}
            self._note(call, task, generation, ticket, share, report)
        serial, lease = message.facts.get("serial"), None

        def is_ready() -> bool:
            nonlocal lease
            if call.result is not None or call.epoch is None or call.epoch.serial != serial:
                return True
            if call.book.is_over(call.epoch.epoch) or call is not self._calls[-1]:
                return True
            if message.facts.get("wants", True):
                lease = call.book.lease(task, self._clock(), message.facts.get("first", 0), message.facts.get("last"))
            return lease is not None

        self._wait_until(message, is_ready)
        if lease is None:
            return self._answer(call, "none")
        tasks = 1 + sum(p.is_connected for name, p in self._peers.items() if name not in self._servers)
        more = call.book.lease_more(task, self._clock(), int(message.facts.get("most", 1)) - 1, tasks)
        leases = [
            [le.ticket, le.share, le.shares, le.epoch, le.batch, le.generation, dict(le.hyper)] for le in (lease, *more)
        ]
        return self._answer(call, "lease", leases=leases)

    def _exhausted(self, task: str, message: Message) -> Message:
        del task
        call = self._call_of(message)
        if call is not None and call is self._calls[-1] and call.epoch is not None:
            if call.epoch.serial == message.facts.get("serial"):
                try:
                    call.book.exhausted(call.epoch.epoch, int(message.facts["batches"]))
                except MismatchError as error:
                    self._error = self._error or failure.mark_agreed(error)  # pyright: ignore[reportAttributeAccessIssue]
                    return Message("error", {"error": "MismatchError", "message": str(error)})
            self._changed.notify_all()
        return self._answer(call, "noted")

    def _give_back(self, task: str, message: Message) -> Message:
        call = self._call_of(message)
        if call is not None and call is self._calls[-1]:
            call.book.give_back(task, int(message.facts["ticket"]), int(message.facts["share"]))
            self._changed.notify_all()
        return self._answer(call, "noted")

    def _result(self, task: str, message: Message) -> Message:
        del task
        call = self._await_call(message)
        if call is None:
            return self._answer(None, "ended" if self._has_ended else "wait")
        if not self._wait_until(message, lambda: call.result is not None or self._has_ended):
            return self._answer(call, "wait")
        if call.result is None:
            return self._answer(call, "ended")
        answer = self._answer(call, "result")
        return replace(answer, facts={**answer.facts, **call.result.facts}, arrays=call.result.arrays)

    def _failed(self, task: str, message: Message) -> Message:
        """Ends the job for the error of a task that is not started again."""
        record = message.facts
        text = f"{task} failed first. {record.get('type')}: {record.get('message')}"
        if record.get("final"):
            _log.error("%s", text)
            error = failure.attach_cause(PeerError(text), {"task": task, "type": record.get("type"), "message": text})
            self._error = self._error or error
            self._changed.notify_all()
        return self._answer(None, "noted")

    def _serves(self, task: str, message: Message) -> Message:
        del message
        self._serving.add(task)
        return self._answer(None, "noted")

    def _state(self, task: str, message: Message) -> Message:
        del task
        missing = self._missing_servers()
        return self._answer(self._call_of(message), "state", ended=self._has_ended, missing=missing)

    def _note(self, call: _Call, task: str, generation: int, ticket: int, share: int, report: Report) -> bool:
        counts = call.book.done(task, generation, ticket, share, self._clock())
        if counts:
            call.reports.setdefault(ticket, {})[share] = {name: np.asarray(value) for name, value in report.items()}
            self._changed.notify_all()
        return counts
