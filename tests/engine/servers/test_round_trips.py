"""Round trips over connections that break anywhere: each push counts once, and each pull has its own answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.servers import round_trips
from lockstep._engine.servers.messages import Message, Superseded
from lockstep._engine.servers.replies import Replies
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply, Request
from lockstep._engine.servers.round_trips import RoundTrips
from lockstep.errors import MissingTaskError

# What happens to a call of a link: it is lost before it comes to the server, or its answer is lost after that.
FINE, LOST, ANSWER_LOST = "fine", "lost", "answer lost"


@dataclass
class FlakyLink:
    """Way to a server that counts tickets, over a connection that breaks as `faults` has it.

    Attributes:
        task: The server's name.
        faults: What happens to the sends to come; fine when it is empty.
        generation: The server's.
        tickets: Those that count, in their order.
        duplicates: How many pushes came again.
    """

    task: str
    faults: deque[str] = field(default_factory=deque[str])
    generation: int = 0
    tickets: list[int] = field(default_factory=list[int])
    duplicates: int = 0
    heard: float = 0.0
    _answers: deque[Reply | None] = field(default_factory=deque["Reply | None"])

    def bind(self, spec: JobSpec) -> None:
        del spec

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        raise AssertionError("exchanges ask nothing")

    def close(self) -> None:
        self.disconnect()

    def __post_init__(self) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        self._answers.clear()
        self._is_broken = False
        self._replies = Replies(self._answer)

    def send(self, request: Request) -> None:
        fault = self.faults.popleft() if self.faults else FINE
        if fault == LOST:
            self.disconnect()
            raise ConnectionResetError("lost")
        reply = self._replies.reply_to(request)
        # A connection that breaks after a push ahead is noticed by the request that follows.
        self._is_broken = self._is_broken or fault == ANSWER_LOST
        if reply is not None:
            self._answers.append(None if self._is_broken else reply)

    def receive(self) -> Reply:
        assert self._answers, "an answer is received for each request"
        answer = self._answers.popleft()
        if answer is None:
            self.disconnect()
            raise ConnectionResetError("the answer is lost")
        return answer

    def _answer(self, push: Push | None, pull: Pull | None, seconds: float) -> Reply:
        del seconds
        request = push or pull
        assert request is not None, "a request has a push or a pull"
        if request.generation != self.generation:
            return Reply(len(self.tickets), status="superseded")
        is_new = push is not None and push.ticket not in self.tickets
        if push is not None and is_new:
            self.tickets.append(push.ticket)
        self.duplicates += push is not None and not is_new
        # The answer to a pull names it.
        missing = () if pull is None else (pull.dense_newer_than,)
        return Reply(len(self.tickets), is_new, push.ticket if push else 0, missing=missing)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_trips, "_RETRY_SECONDS", 0.0)


def trips_of(links: Sequence[FlakyLink]) -> RoundTrips:
    return RoundTrips(links, lambda task, seconds, generation: None)


def pushes_of(links: Sequence[FlakyLink], ticket: int) -> list[Push]:
    return [Push(0, ticket) for _ in links]


STEPS = st.lists(st.sampled_from(["ahead", "together", "alone", "read between"]), min_size=1, max_size=12)
FAULTS = st.lists(st.sampled_from([FINE, FINE, LOST, ANSWER_LOST]), max_size=20)


@given(STEPS, st.lists(FAULTS, min_size=1, max_size=3))
def test_each_push_counts_once_and_each_pull_has_its_answer(steps: list[str], faults: list[list[str]]) -> None:
    links = [FlakyLink(f"ps {i}", deque(own)) for i, own in enumerate(faults)]
    trips = trips_of(links)
    for ticket, step in enumerate(steps):
        pushes = pushes_of(links, ticket)
        pulls = [None if step == "alone" else Pull(0, {}, ticket) for _ in links]
        if step != "together":
            trips.begin(pushes)
        if step == "read between":
            between = trips.run([None] * len(links), [Pull(0, {}, 1000) for _ in links], 0, 60.0)
            assert {reply.missing for reply in between.values()} == {(1000,)}
        replies = trips.run(pushes, pulls, 0, 60.0)
        assert [replies[n].missing for n in range(len(links))] == [() if p is None else (ticket,) for p in pulls]
        # What the server has said to the push is in the answer, whichever request brought it.
        assert [replies[n].staleness for n in range(len(links))] == [ticket] * len(links)
    for link in links:
        assert link.tickets == list(range(len(steps)))
        assert not link._answers, "every answer is received"


def test_a_push_that_goes_ahead_is_applied_before_its_answer_is_received() -> None:
    link = FlakyLink("ps 0")
    trips = trips_of([link])
    trips.begin(pushes := pushes_of([link], 0))
    assert link.tickets == [0]
    assert trips.run(pushes, [None], 0, 60.0)[0].applied
    assert (link.tickets, link.duplicates) == ([0], 0)


def test_a_push_that_is_dropped_leaves_no_answer_for_the_next_request() -> None:
    links = [FlakyLink("ps 0"), FlakyLink("ps 1")]
    trips = trips_of(links)
    trips.begin(pushes_of(links, 0))
    trips.drop()
    replies = trips.run([None, None], [Pull(0, {}, 7), Pull(0, {}, 8)], 0, 60.0)
    assert [replies[n].missing for n in (0, 1)] == [(7,), (8,)]


def test_servers_of_another_generation_have_answered_everything() -> None:
    links = [FlakyLink("ps 0"), FlakyLink("ps 1", generation=1)]
    trips = trips_of(links)
    trips.begin(pushes := pushes_of(links, 0))
    with pytest.raises(Superseded, match="ps 1"):
        trips.run(pushes, [Pull(0), Pull(0)], 0, 60.0)
    assert not links[0]._answers
    assert not links[1]._answers


def test_a_server_that_stays_away_is_named() -> None:
    link = FlakyLink("ps 3", deque([LOST] * 1000))
    trips = trips_of([link])
    trips.begin(pushes := pushes_of([link], 0))
    with pytest.raises(MissingTaskError, match=r"ps 3 must answer within 0\.01 s"):
        trips.run(pushes, [Pull(0)], 0, 0.01)
