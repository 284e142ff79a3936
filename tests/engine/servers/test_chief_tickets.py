"""The chief's way through tickets: which of the open batches it computes, and in which order it learns of updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from lockstep._engine.servers.call import Call
from lockstep._engine.servers.chief_tickets import ChiefTickets
from lockstep._engine.servers.job_state import Epoch, Report
from lockstep._engine.servers.tickets import Lease, TicketBook


class _Call:
    """A call without other tasks: they do what a test says, when the chief waits for them."""

    def __init__(self) -> None:
        self.book = TicketBook()
        self.others: list[Callable[[], None]] = []

    def begin_epoch(self, epoch: int, first_batch: int, batches: int | None, extra: Any) -> Epoch:
        first = self.book.begin_epoch(epoch, first_batch, batches)
        return Epoch(epoch, first_batch, batches, first, extra, 0, 0)

    def release(self, until: int, hyper: Mapping[str, float]) -> None:
        self.book.release(until, hyper)

    def lease(self, seconds: float, first: int, last: int | None = None) -> Lease | None:
        assert not seconds
        return self.book.lease("chief", 0.0, first, last)

    def wait(self, ticket: int, seconds: float) -> list[Report] | None:
        if not self.book.is_done(ticket) and seconds:
            self.others.pop(0)()
        return [{}] if self.book.is_done(ticket) else None

    def done(self, task: str, ticket: int) -> None:
        assert self.book.done(task, 0, ticket, 0, 0.0)

    def other_leases(self) -> int:
        lease = self.book.lease("other", 0.0)
        assert lease is not None
        return lease.ticket


class _Client:
    """Computes what it gets, and pushes it with the next one or when it is flushed."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._waiting: int | None = None
        self.computed: list[tuple[int, Any]] = []

    def compute(self, lease: Lease, batch: Any) -> None:
        self.flush()
        self.computed.append((lease.ticket, batch))
        self._waiting = lease.ticket

    def flush(self) -> None:
        if self._waiting is not None:
            self._call.done("chief", self._waiting)
        self._waiting = None


def _begin() -> tuple[_Call, _Client, ChiefTickets]:
    call = _Call()
    client = _Client(call)
    tickets = ChiefTickets(cast(Call, call), cast(Any, client), True, 64)
    tickets.begin_epoch(0, 0, None, {})
    call.release(64, {})
    return call, client, tickets


def test_the_chief_computes_later_batches_while_another_task_has_the_first() -> None:
    call, client, tickets = _begin()
    assert call.other_leases() == 0
    assert tickets.submit("zero", 64, {}, 1) == []
    assert (tickets.next, tickets.steps) == (0, 1)
    # Of three open ones it computes two before it waits for the other task.
    call.others = [lambda: call.done("other", 0)]
    applied = [*tickets.submit("one", 64, {}, 1), *tickets.submit("two", 64, {}, 1), *tickets.settle()]
    assert [(ticket, batch) for ticket, batch, _ in applied] == [(0, "zero"), (1, "one"), (2, "two")]
    assert client.computed == [(1, "one"), (2, "two")]
    assert (tickets.next, tickets.steps) == (3, 3)


def test_a_step_is_waited_for_where_nothing_may_be_behind() -> None:
    call, client, tickets = _begin()
    assert len(tickets.step("zero", 64, {})) == 1
    assert client.computed == [(0, "zero")] and call.book.applied == 1


def test_a_lease_of_a_later_batch_that_another_task_was_faster_with_is_void() -> None:
    call, client, tickets = _begin()
    assert call.other_leases() == 0
    call.others = [lambda: call.done("other", 0)]
    tickets.step("zero", 64, {})
    # The chief has a lease of 1 since, and somebody has found it slow.
    call.done("other", 1)
    assert call.other_leases() == 2
    call.others = [lambda: call.done("other", 2)]
    for batch in ("one", "two", "three"):
        tickets.step(batch, 64, {})
    assert client.computed == [(3, "three")]
