"""The book of tickets: each done once, leases that return, bounds, the end of the data, rollbacks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.servers.tickets import WINDOW, Lease, TicketBook
from lockstep.errors import ArgumentError, MismatchError


def _book(shares: int = 1, staleness: int | None = None, tickets: int = 100) -> TicketBook:
    book = TicketBook(shares, staleness)
    book.begin_epoch(0)
    book.release(tickets)
    return book


def _take(book: TicketBook, worker: str = "a", now: float = 0.0) -> Lease:
    lease = book.lease(worker, now)
    assert lease is not None
    return lease


def _finish(book: TicketBook, lease: Lease, worker: str = "a", now: float = 0.0) -> bool:
    return book.done(worker, lease.generation, lease.ticket, lease.share, now)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_staleness_bounds_how_far_leases_run_ahead(staleness: int) -> None:
    book = _book(staleness=staleness)
    leases = [_take(book) for _ in range(staleness + 1)]
    assert book.lease("a", 0.0) is None
    for lease in reversed(leases):  # The oldest counts, not the number.
        assert book.lease("a", 0.0) is None
        _finish(book, lease)
    assert _take(book).ticket == staleness + 1


def test_without_a_bound_the_window_is_one() -> None:
    book = _book()
    assert [_take(book).ticket for _ in range(WINDOW)] == list(range(WINDOW))
    assert book.lease("a", 0.0) is None


def test_leases_of_a_task_that_has_gone_come_first() -> None:
    book = _book()
    lost = [_take(book, "a"), _take(book, "b"), _take(book, "a")]
    assert book.gone("a") == 2
    assert [_take(book, "c").ticket for _ in range(3)] == [0, 2, 3]
    assert _finish(book, lost[1], "b")


def test_a_late_report_of_a_lease_that_was_given_again_counts_once() -> None:
    book = _book()
    old = _take(book, "a")
    book.gone("a")
    new = _take(book, "b")
    assert _finish(book, old, "a")
    assert not _finish(book, new, "b")
    assert book.applied == 1


def test_an_idle_task_computes_a_slow_share_again() -> None:
    book = _book(shares=2, staleness=0, tickets=2)
    for lease in (_take(book), _take(book)):
        _finish(book, lease, now=0.1)
    first, slow = _take(book, "a", 1.0), _take(book, "b", 1.0)
    _finish(book, first, "a", 1.1)
    assert book.lease("a", 1.2) is None  # Not slow yet.
    assert book.lease("b", 2.0) is None  # It has it already.
    assert book.lease("a", 2.0) == slow
    assert _finish(book, slow, "a", 2.1) and book.applied == 2
    assert not _finish(book, slow, "b", 3.0)


def test_nothing_is_slow_before_the_first_has_been_done() -> None:
    book = _book(tickets=1)
    _take(book, "a")
    assert book.lease("b", 1000.0) is None


def test_a_round_follows_the_last_one() -> None:
    book = _book(shares=3, staleness=0)
    leases = [_take(book) for _ in range(3)]
    assert [(lease.ticket, lease.share) for lease in leases] == [(0, 0), (0, 1), (0, 2)]
    for lease in reversed(leases):
        assert book.lease("a", 0.0) is None
        assert book.applied == 0
        _finish(book, lease)
    assert _take(book).ticket == 1


def test_the_share_that_closes_a_round_is_leased_when_the_others_are_done() -> None:
    book = TicketBook(3, 0, closes=True)
    book.begin_epoch(0)
    book.release(2)
    first, second = _take(book, "a"), _take(book, "b")
    _finish(book, second, "b")
    assert book.lease("b", 0.0) is None
    book.gone("a")
    again = _take(book, "b")
    assert (again.ticket, again.share) == (first.ticket, first.share)
    assert book.lease("c", 0.0) is None
    _finish(book, again, "b")
    closing = _take(book, "c")
    assert (closing.ticket, closing.share, book.applied) == (0, 2, 0)
    book.gone("c")
    assert _take(book, "b") == closing
    _finish(book, closing, "b")
    assert book.applied == 1 and _take(book).ticket == 1


def test_hyper_parameters_are_those_that_a_ticket_was_released_with() -> None:
    book = _book(tickets=0)
    book.release(2, {"rate": 0.1})
    first = _take(book)
    book.release(4, {"rate": 0.2})
    book.gone("a")
    assert [_take(book).hyper["rate"] for _ in range(4)] == [0.1, 0.1, 0.2, 0.2]
    assert first.hyper == {"rate": 0.1}


def test_the_end_of_the_data_voids_leases_beyond_it() -> None:
    book = _book()
    leases = [_take(book) for _ in range(5)]
    book.exhausted(0, 3)
    assert book.lease("a", 0.0) is None and not book.is_over(0)
    assert not _finish(book, leases[4])
    assert all(_finish(book, lease) for lease in leases[:3])
    assert book.is_over(0) and book.is_quiet(3)
    assert book.begin_epoch(1) == 3
    book.release(5)
    assert (_take(book).epoch, _take(book).batch) == (1, 1)


def test_an_epoch_that_goes_on_in_the_middle() -> None:
    book = TicketBook()
    book.roll_back(7, 2)
    book.begin_epoch(1, first_batch=3, batches=5)
    book.release(100)
    leases = [_take(book), _take(book)]
    assert [(lease.ticket, lease.batch, lease.generation) for lease in leases] == [(7, 3, 2), (8, 4, 2)]
    assert book.lease("a", 0.0) is None


def test_other_data_on_one_task_are_an_error() -> None:
    book = _book()
    book.exhausted(0, 3)
    book.exhausted(0, 3)
    with pytest.raises(MismatchError, match="4 batches in epoch 0 on one task, 3"):
        book.exhausted(0, 4)
    book = _book()
    leases = [_take(book) for _ in range(5)]
    _finish(book, leases[4])
    with pytest.raises(MismatchError, match="same data"):
        book.exhausted(0, 3)


def test_after_a_rollback_the_past_counts_for_nothing() -> None:
    book = _book()
    leases = [_take(book) for _ in range(4)]
    _finish(book, leases[0])
    book.roll_back(0, 1)
    assert book.lease("a", 0.0) is None
    book.begin_epoch(0)
    book.release(4)
    assert not _finish(book, leases[1])
    again = [_take(book) for _ in range(4)]
    assert [lease.ticket for lease in again] == [0, 1, 2, 3]
    assert all(_finish(book, lease) for lease in again) and book.applied == 4


def test_a_cut_waits_for_open_tickets() -> None:
    book = _book(tickets=2)
    leases = [_take(book), _take(book)]
    _finish(book, leases[1])
    assert not book.is_quiet(2)
    _finish(book, leases[0])
    assert book.is_quiet(2) and not book.is_quiet(1)


def test_one_ticket_alone_can_be_asked_for() -> None:
    book = _book()
    assert book.lease("a", 0.0, 1, 1) is None
    assert book.lease("a", 0.0, 0, 0) is not None
    assert book.lease("a", 0.0, 0, 0) is None
    book.gone("a")
    later = book.lease("a", 0.0, first=1)
    assert later is not None and later.ticket == 1
    assert _take(book).ticket == 0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="has at least 1 share"):
        TicketBook(0)
    with pytest.raises(ArgumentError, match="staleness must be at least 0"):
        TicketBook(1, -1)
    book = _book()
    _take(book)
    with pytest.raises(ArgumentError, match="tickets \\[0\\] open"):
        book.begin_epoch(1)


@dataclass
class _Model:
    """Reference of a job: what each server would have applied."""

    book: TicketBook
    shares: int
    staleness: int | None
    held: dict[str, list[Lease]] = field(default_factory=dict[str, list[Lease]])
    counted: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    cut: int = 0
    now: float = 0.0

    def step(self, action: int, worker: str) -> None:
        self.now += 0.1
        leases = self.held.setdefault(worker, [])
        if action < 4:
            if (lease := self.book.lease(worker, self.now)) is not None:
                bound = WINDOW - 1 if self.staleness is None else self.staleness
                assert lease.ticket - bound <= self.book.applied <= lease.ticket
                assert (lease.ticket, lease.share) not in self.counted
                leases.append(lease)
        elif action < 8 and leases:
            lease = leases.pop(action % len(leases))
            if self.book.done(worker, lease.generation, lease.ticket, lease.share, self.now):
                assert lease.generation == self.book.generation
                self.counted.append((lease.ticket, lease.share))
        elif action == 8:
            self.book.gone(worker)
            leases.clear()
        elif action == 9:
            self.book.gone(worker)  # A task that was cut off still has its leases, and may report them.
        elif action == 10:
            if self.book.is_quiet(self.book.applied):
                self.cut = self.book.applied
        elif action == 11:
            self.roll_back()

    def roll_back(self) -> None:
        self.book.roll_back(self.cut, self.book.generation + 1)
        self.book.begin_epoch(0, self.cut)
        self.book.release(60)
        self.counted = [done for done in self.counted if done[0] < self.cut]


@given(
    shares=st.integers(1, 3),
    staleness=st.none() | st.integers(0, 4),
    actions=st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["a", "b", "c"])), max_size=150),
    batches=st.integers(1, 20),
)
def test_each_share_is_done_once_whatever_happens(
    shares: int, staleness: int | None, actions: list[tuple[int, str]], batches: int
) -> None:
    model = _Model(_book(shares, staleness, 60), shares, staleness)
    for action, worker in actions:
        model.step(action, worker)
    # Then one task that lives does the rest.
    for worker in model.held:
        model.book.gone(worker)
    if model.book.applied <= batches and all(ticket < batches for ticket, _ in model.counted):
        model.book.exhausted(0, batches)
    else:
        batches = 60
        model.book.exhausted(0, batches)
    while not model.book.is_over(0):
        lease = model.book.lease("last", model.now)
        assert lease is not None
        assert model.book.done("last", lease.generation, lease.ticket, lease.share, model.now)
        model.counted.append((lease.ticket, lease.share))
    assert sorted(model.counted) == [(ticket, share) for ticket in range(batches) for share in range(shares)]
    assert model.book.is_quiet(batches)
