"""Tickets: which task computes which global batch, as a state machine without sockets, threads or clocks.

A *ticket* is the work on one global batch; in synchronous training it is divided into *shares*. A *lease* gives a share
to a task. The book keeps these rules, whatever dies:

* each share of each ticket counts as done once, by whoever reports it first;
* the leases of a task that has gone are given again, the oldest first;
* ticket k is leased when every ticket below k - staleness is done (stale synchronous parallel; Ho et al. 2013), and in
  synchronous training when every ticket below k is;
* a share whose lessee is slow is leased a second time to a task that is idle (backup workers; Chen et al. 2016), and
  nothing is dropped: the first report counts;
* a report of an earlier *generation*, which a rollback has ended, counts for nothing.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.errors import ArgumentError, MismatchError

# Tickets between the oldest open one and the newest lease. A task reads its data in order and keeps so many batches at
# hand, because a lease that comes back is of an earlier one.
WINDOW = 32
# A lease counts as slow after so many times the median of the last ones, and no sooner than after so many seconds:
# below that the two computations only share the processors.
_SLOW_FACTOR = 4.0
_SLOW_SECONDS = 0.25
_REMEMBERED = 64
# Tasks that compute the same share at once. More would help only if several were slow.
_MAX_LESSEES = 3


@dataclass(frozen=True)
class Lease:
    """Permission to compute one share of a global batch.

    Attributes:
        ticket: The number of the global batch, from the start of the call's training.
        share: Which share of it, from 0.
        shares: The number of shares that the batch is divided into.
        epoch: The epoch that the batch is of.
        batch: Its number in the epoch, from 0.
        generation: The generation of the servers' state that it is valid in.
        hyper: Scalars for the update, such as the learning rate.
    """

    ticket: int
    share: int
    shares: int
    epoch: int
    batch: int
    generation: int
    hyper: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def version(self) -> int:
        """The number of updates that a server has applied when a synchronous share may be computed: its ticket."""
        return self.ticket


@dataclass
class _Share:
    """A share that has been leased, and is not of a finished ticket."""

    lessees: dict[str, float] = field(default_factory=dict[str, float])  # Since when each has it.
    is_done: bool = False

    @property
    def is_lost(self) -> bool:
        """Returns whether nobody computes it any more."""
        return not self.is_done and not self.lessees


@dataclass
class _Span:
    """The tickets of one epoch."""

    epoch: int
    first_ticket: int
    first_batch: int
    batches: int | None  # All of the epoch's, if the number is known.

    @property
    def end(self) -> int | None:
        """The first ticket that is not of this epoch any more."""
        return None if self.batches is None else self.first_ticket + self.batches - self.first_batch


class TicketBook:
    """Book of the tickets of one training: what is leased to whom, and what is done.

    Args:
        shares: The number of shares of each ticket; 1 in asynchronous training.
        staleness: How many tickets may be open below one that is leased; `None` for as many as `WINDOW` allows. 0 in
            synchronous training.
        generation: The generation of the servers' state.
        closes: Whether the last share of a ticket is made of what the others came to: it is leased when they are done.

    Attributes:
        generation: The current generation.
        applied: The number of tickets that are done without a gap: every ticket below it is.
    """

    def __init__(
        self, shares: int = 1, staleness: int | None = None, generation: int = 0, closes: bool = False
    ) -> None:
        if shares < 1:
            raise ArgumentError(f"A ticket has at least 1 share. Received: {shares}. Give the number of replicas.")
        if staleness is not None and staleness < 0:
            raise ArgumentError(
                f"staleness must be at least 0. Received: {staleness}. Give the number of updates that a gradient may "
                "miss, or None for no bound."
            )
        self.generation = generation
        self.applied = 0
        self._shares = shares
        self._closes = closes
        self._ahead = WINDOW - 1 if staleness is None else min(staleness, WINDOW - 1)
        self._open: dict[int, list[_Share]] = {}
        # The next share that was never leased.
        self._next = (0, 0)
        self._until = 0
        self._hypers: deque[tuple[int, Mapping[str, float]]] = deque()
        self._span: _Span | None = None
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self.is_paused = False

    @property
    def leased(self) -> int:
        """The number of tickets that have been leased, in whole or in part."""
        ticket, share = self._next
        return ticket + (share > 0)

    @property
    def until(self) -> int:
        """The first ticket that is not released yet."""
        return self._until

    @property
    def epoch(self) -> int | None:
        """The epoch that was begun last, or `None` before the first."""
        return None if self._span is None else self._span.epoch

    @property
    def batches(self) -> int | None:
        """The number of batches of the current epoch, if it is known."""
        return None if self._span is None else self._span.batches

    def begin_epoch(self, epoch: int, first_batch: int = 0, batches: int | None = None) -> int:
        """Begins an epoch with batch `first_batch`, and returns the ticket of that.

        Args:
            epoch: The number of the epoch, larger than that of the last.
            first_batch: The first batch that is trained on; not 0 where a training goes on in the middle of an epoch.
            batches: The number of batches of the epoch, if it is known.

        Raises:
            ArgumentError: If tickets of the last epoch are open.
        """
        if self._open:
            raise ArgumentError(
                f"An epoch begins when every ticket of the last one is done. Received: epoch {epoch}, with tickets "
                f"{sorted(self._open)} open. Wait for them first."
            )
        self._span = _Span(epoch, self.applied, first_batch, batches)
        self._next = (self.applied, 0)
        # What was released beyond the end of the last epoch was released for that one.
        self._until = min(self._until, self.applied)
        self._hypers.clear()
        return self.applied

    def release(self, until: int, hyper: Mapping[str, float] | None = None) -> None:
        """Allows tickets below `until` to be leased, with the scalars `hyper` for those that were not released yet."""
        if until > self._until:
            self._hypers.append((until, dict(hyper or {})))
            self._until = until

    def lease(self, worker: str, now: float, first: int = 0, last: int | None = None) -> Lease | None:
        """Leases a share to `worker`: one that was lost, else the next, else one whose lessee is slow.

        Args:
            worker: The name of the task.
            now: Seconds by any clock that does not go back.
            first: The first ticket that the task can compute: its reader does not go back.
            last: The last ticket that it can compute; any if `None`.

        Returns:
            The lease, or `None` if there is nothing to do now.
        """
        span = self._span
        if span is None or self.is_paused:
            return None
        chosen = self._lost(first, last) or self._fresh(span, first, last) or self._slow(worker, now, first, last)
        if chosen is None:
            return None
        ticket, share = chosen
        if chosen == self._next:
            self._next = (ticket, share + 1) if share + 1 < self._shares else (ticket + 1, 0)
            self._open.setdefault(ticket, [_Share() for _ in range(self._shares)])
        self._open[ticket][share].lessees[worker] = now
        return Lease(
            ticket=ticket,
            share=share,
            shares=self._shares,
            epoch=span.epoch,
            batch=span.first_batch + ticket - span.first_ticket,
            generation=self.generation,
            hyper=self._hyper_of(ticket),
        )

    def lease_more(self, worker: str, now: float, most: int, tasks: int) -> list[Lease]:
        """Leases the tickets that come next to `worker`, which has just got one, so that it asks less often.

        None where staleness is bounded or rounds have shares: what waits at one task would hold others up. Near the end
        of what is released each task gets its part.

        Args:
            worker: The name of the task.
            now: Seconds by any clock that does not go back.
            most: How many it wants.
            tasks: How many tasks compute.
        """
        span, (ticket, _) = self._span, self._next
        if span is None or self._shares > 1 or self._ahead < WINDOW - 1:
            return []
        end = self._until if span.end is None else min(self._until, span.end)
        most = min(most, WINDOW // (2 * tasks), -(-(end - ticket) // (2 * tasks)))
        leases = [self.lease(worker, now, ticket) for _ in range(most) if self._fresh(span, ticket, None) is not None]
        return [lease for lease in leases if lease is not None]

    def done(self, worker: str, generation: int, ticket: int, share: int, now: float) -> bool:
        """Notes that a share is applied on every server.

        Returns:
            Whether it counts: `False` for one that was done already, or of an earlier generation.
        """
        if generation != self.generation or ticket < self.applied:
            return False
        shares = self._open.get(ticket)
        if shares is None or not 0 <= share < self._shares:
            return False  # A ticket beyond the end of the data, or one that nobody has leased.
        entry = shares[share]
        if (since := entry.lessees.pop(worker, None)) is not None:
            self._durations.append(now - since)
        if entry.is_done:
            return False
        entry.is_done = True
        entry.lessees.clear()
        while all(s.is_done for s in self._open.get(self.applied, [_Share()])):
            del self._open[self.applied]
            self.applied += 1
        while self._hypers and self._hypers[0][0] <= self.applied:
            self._hypers.popleft()
        return True

    def is_done(self, ticket: int) -> bool:
        """Returns whether every share of a ticket is done."""
        return ticket < self.applied or all(s.is_done for s in self._open.get(ticket, [_Share()]))

    def give_back(self, worker: str, ticket: int, share: int) -> None:
        """Takes one lease back from a task that cannot compute it."""
        if ticket in self._open:
            self._open[ticket][share].lessees.pop(worker, None)

    def gone(self, worker: str) -> int:
        """Takes all leases back from a task that has gone; returns how many it had."""
        entries = [s for shares in self._open.values() for s in shares if worker in s.lessees]
        for entry in entries:
            del entry.lessees[worker]
        return len(entries)

    def exhausted(self, epoch: int, batches: int) -> None:
        """Notes that the data of an epoch have ended: leases of later batches are void.

        Raises:
            MismatchError: If another task has another number of batches in this epoch.
        """
        span = self._span
        if span is None or span.epoch != epoch:
            return
        end = span.first_ticket + max(batches - span.first_batch, 0)
        computed = [t for t, shares in self._open.items() if t >= end and any(s.is_done for s in shares)]
        if (span.batches is not None and span.batches != batches) or computed or self.applied > end:
            others = span.batches if span.batches is not None else max([self.applied, *(t + 1 for t in computed)])
            raise MismatchError(
                f"All tasks must read the same data. Received: {batches} batches in epoch {epoch} on one task, "
                f"{others} or more on another. Give every task the same files, and the same seed for shuffling."
            )
        span.batches = batches
        for ticket in [t for t in self._open if t >= end]:
            del self._open[ticket]
        self._next = min(self._next, (end, 0))

    def is_over(self, epoch: int) -> bool:
        """Returns whether all batches of an epoch are done, or a later one has begun."""
        span = self._span
        if span is None or span.epoch < epoch:
            return False
        return span.epoch > epoch or (span.end is not None and self.applied >= span.end)

    def is_quiet(self, step: int) -> bool:
        """Returns whether exactly the tickets below `step` are done, and none is leased: a cut can be made."""
        return self.applied == step and not self._open and self._next == (step, 0)

    def roll_back(self, ticket: int, generation: int) -> None:
        """Goes back to the state in which exactly the tickets below `ticket` are done, as a new generation."""
        self.generation = generation
        self.applied = self._until = ticket
        self._next = (ticket, 0)
        self._open.clear()
        self._hypers.clear()
        self._durations.clear()
        self._span = None

    def missing(self) -> dict[str, list[int]]:
        """Returns the tickets that each task has and has not done, for reports of who is waited for."""
        listing: dict[str, list[int]] = {}
        for ticket, shares in sorted(self._open.items()):
            for worker in sorted({w for s in shares for w in s.lessees}):
                listing.setdefault(worker, []).append(ticket)
        return listing

    def _candidates(self, first: int, last: int | None) -> list[tuple[int, int, _Share]]:
        """Returns the shares of open tickets that a task can compute, the oldest first."""
        tickets = [t for t in sorted(self._open) if t >= first and (last is None or t <= last)]
        return [(t, number, share) for t in tickets for number, share in enumerate(self._open.get(t, ()))]

    def _lost(self, first: int, last: int | None) -> tuple[int, int] | None:
        for ticket, number, share in self._candidates(first, last):
            # Shares beyond the next were never leased: they come in order.
            if share.is_lost and (ticket, number) < self._next:
                return ticket, number
        return None

    def _fresh(self, span: _Span, first: int, last: int | None) -> tuple[int, int] | None:
        ticket, share = self._next
        if ticket < first or (last is not None and ticket > last):
            return None
        if self._closes and share == self._shares - 1 and not all(s.is_done for s in self._open[ticket][:share]):
            return None
        is_open = ticket < self._until and (span.end is None or ticket < span.end)
        return self._next if is_open and ticket - self.applied <= self._ahead else None

    def _slow(self, worker: str, now: float, first: int, last: int | None) -> tuple[int, int] | None:
        if not self._durations:
            return None  # The first takes as long as compilation does.
        patience = max(_SLOW_SECONDS, _SLOW_FACTOR * statistics.median(self._durations))
        for ticket, number, share in self._candidates(first, last):
            lessees = share.lessees
            is_open = bool(lessees) and worker not in lessees and len(lessees) < _MAX_LESSEES
            if is_open and now - max(lessees.values()) > patience:
                return ticket, number
        return None

    def _hyper_of(self, ticket: int) -> Mapping[str, float]:
        return next((hyper for until, hyper in self._hypers if ticket < until), {})
