"""Coordinator of a job with parameter servers: what the chief's own program does with what all its tasks share.

The state is the sequence of calls (`fit`, `evaluate`, ...) that every task makes, the book of tickets of the current
one, and what tasks have reported; `Membership` knows who is there, and `TaskRequests` answers the other tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.job_state import CallRecord, Epoch, JobState, Report
from lockstep._engine.servers.membership import Membership
from lockstep._engine.servers.messages import Message
from lockstep._engine.servers.task_requests import ANSWER_SECONDS, TaskRequests
from lockstep._engine.servers.tickets import Lease, TicketBook
from lockstep.errors import LockstepError


class Coordinator:
    """The chief's way to what all tasks of a job share.

    Args:
        chief: The name of the chief's task.
        servers: The names and addresses of the servers, for messages about those that are missing.
        limits: The limits of all waits.
        clock: Returns seconds.

    Attributes:
        state: What all tasks share.
        members: The other tasks.
        requests: Answers to them.
    """

    def __init__(
        self,
        chief: str,
        servers: Mapping[str, str],
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = JobState(clock)
        self.members = Membership(self.state, chief, servers, limits or Limits())
        self.requests = TaskRequests(self.state, self.members, chief)

    def begin(self, kind: str, facts: Any) -> int:
        """Begins the next call of the sequence; returns its number."""
        with self.state.changed:
            self._check()
            if self.state.calls and self.state.current.result is None:
                # An exception has ended the last one on the chief, which has caught it and goes on.
                self.state.current.result = Message("result", {"result": None})
            self.state.calls.append(CallRecord(len(self.state.calls), kind, facts))
            self.state.current.book = TicketBook(generation=self.state.generation)
            self.state.notify()
            return len(self.state.calls) - 1

    def open(
        self, opened: Message, shares: int, staleness: int | None, first_ticket: int, closes: bool = False
    ) -> None:
        """Gives every task what the chief has opened the servers with; tickets count from `first_ticket`."""
        with self.state.changed:
            call = self.state.current
            call.opened = opened
            call.book = TicketBook(shares, staleness, closes=closes)
            call.book.roll_back(first_ticket, self.state.generation)
            self.state.notify()

    def begin_epoch(self, epoch: int, first_batch: int, batches: int | None, extra: Any) -> Epoch:
        """Begins an epoch for all tasks."""
        with self.state.changed:
            self._check()
            call = self.state.current
            serial = 0 if call.epoch is None else call.epoch.serial + 1
            ticket = call.book.begin_epoch(epoch, first_batch, batches)
            call.epoch = Epoch(epoch, first_batch, batches, ticket, extra, serial, self.state.generation)
            self.state.notify()
            return call.epoch

    def end_epoch(self, batches: int) -> None:
        """Ends the current epoch after so many batches."""
        with self.state.changed:
            call = self.state.current
            if call.epoch is not None:
                call.book.exhausted(call.epoch.epoch, batches)
            self.state.notify()

    def release(self, until: int, hyper: Mapping[str, float]) -> None:
        """Allows tickets below `until` to be leased."""
        with self.state.changed:
            self._check()
            self.state.current.book.release(until, hyper)
            self.state.tickets.notify_all()

    def try_lease(self, task: str, first: int, last: int | None) -> Lease | None:
        """Leases a share to the chief itself, or returns `None`."""
        with self.state.changed:
            self._check()
            return self.state.current.book.lease(task, self.state.clock(), first, last)

    def done(self, task: str, lease: Lease, report: Report) -> bool:
        """Notes a share that is done, and what its task reports; returns whether it counts."""
        with self.state.changed:
            return self.state.note_done(self.state.current, task, lease.generation, lease.ticket, lease.share, report)

    def wait(self, ticket: int, seconds: float) -> list[Report] | None:
        """Waits up to `seconds` until a ticket is done; returns its shares' reports in order, else `None`.

        Raises:
            Superseded: If a server has lost its state: `Call.recover` brings it back.
            PeerError: If a task has failed for good.
            MissingTaskError: If a server has been away for longer than the limit.
        """
        end = self.state.clock() + seconds
        with self.state.changed:
            while True:
                self._check()
                call = self.state.current
                if call.book.is_done(ticket):
                    reports = call.reports.pop(ticket, {})
                    return [reports[share] for share in sorted(reports)]
                left = end - self.state.clock()
                if left <= 0:
                    return None
                self.state.tickets.wait(min(left, ANSWER_SECONDS))

    def is_quiet(self, step: int) -> bool:
        """Returns whether a cut can be made before ticket `step`."""
        with self.state.changed:
            self._check()
            return self.state.current.book.is_quiet(step)

    def applied(self) -> int:
        """Returns the number of tickets that are done without a gap."""
        with self.state.changed:
            return self.state.current.book.applied

    def roll_back(self, ticket: int, generation: int) -> None:
        """Begins a new generation, in which exactly the tickets below `ticket` are done."""
        with self.state.changed:
            self.state.generation = generation
            self.members.note_restored()
            call = self.state.current
            call.book.roll_back(ticket, generation)
            call.book.is_paused = False
            call.reports.clear()
            self.state.notify()

    def end(self, result: Message) -> None:
        """Ends the current call with the result that all tasks return."""
        with self.state.changed:
            call = self.state.current
            call.result = result
            call.reports.clear()
            self.state.notify()

    def end_job(self) -> None:
        """Notes that the chief's program has ended: nobody waits for another call."""
        with self.state.changed:
            self.state.has_ended = True
            self.state.notify()

    def release_servers(self) -> None:
        """Notes that no worker needs the servers any more: they may end."""
        with self.state.changed:
            self.state.needs_servers = False
            self.state.notify()

    def check(self) -> None:
        """Raises what ends the chief's call: see `wait`."""
        with self.state.changed:
            self._check()

    def fail(self, error: LockstepError) -> None:
        """Ends the job: every task's next request, and the chief's next call, raises this error."""
        with self.state.changed:
            self.state.end_by(error)

    def _check(self) -> None:
        """Raises what ends the chief's call; the lock is held."""
        if self.state.error is not None:
            raise self.state.error
        self.members.check_servers()
