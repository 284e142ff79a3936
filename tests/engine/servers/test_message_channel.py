"""Requests over a connection that breaks anywhere: each has its own answer, whether it is waited for or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime import limits
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.message_channel import MessageChannel
from lockstep._engine.servers.messages import HEADER, Message, decode
from lockstep.errors import MissingTaskError

# What happens to a request: it is lost before it comes to the other task, or its answer is lost after that.
FINE, LOST, ANSWER_LOST = "fine", "lost", "answer lost"


class FlakyFrames:
    """A connection to a task that answers each request with the number it holds."""

    def __init__(self, faults: deque[str], seen: list[int]) -> None:
        self.heard = 0.0
        self._faults, self._seen = faults, seen
        self._answers: deque[Message | None] = deque()

    def settimeout(self, seconds: float) -> None:
        del seconds

    def close(self) -> None:
        self._answers.clear()

    def send(self, buffers: Sequence[bytes | memoryview]) -> None:
        fault = self._faults.popleft() if self._faults else FINE
        if fault == LOST:
            raise ConnectionResetError("lost")
        first = bytes(buffers[0])
        number = decode(first[HEADER.size :], 0, lambda view: None).facts["number"]
        self._seen.append(number)
        self._answers.append(None if fault == ANSWER_LOST else Message("answer", {"number": number}))

    def read_answer(self) -> Message:
        assert self._answers, "an answer is read for each request"
        answer = self._answers.popleft()
        if answer is None:
            raise ConnectionResetError("the answer is lost")
        return answer


class FlakyCaller:
    """Connects, again and again."""

    def __init__(self, faults: Sequence[str] = ()) -> None:
        self.seen: list[int] = []
        self._faults = deque(faults)

    def connect(self, task: str, address: str, seconds: float) -> FlakyFrames:
        del task, address, seconds
        return FlakyFrames(self._faults, self.seen)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.Deadline, "pause", lambda self: None)


def channel_of(caller: FlakyCaller, join: float = 60.0) -> MessageChannel:
    return MessageChannel(caller, "chief 0", "localhost:1", Limits(join=join))  # type: ignore[arg-type]


def request(number: int) -> Message:
    return Message("request", {"number": number})


def number_of(answer: Message) -> Any:
    return answer.facts["number"]


STEPS = st.lists(st.sampled_from(["ask", "begin", "finish"]), max_size=20)
FAULTS = st.lists(st.sampled_from([FINE, FINE, LOST, ANSWER_LOST]), max_size=20)


@given(STEPS, FAULTS)
def test_each_request_has_its_own_answer(steps: list[str], faults: list[str]) -> None:
    caller = FlakyCaller(faults)
    channel = channel_of(caller)
    begun: deque[Any] = deque()
    for number, step in enumerate(steps):
        if step == "ask":
            assert number_of(channel.ask(request(number))) == number
        elif step == "begin":
            begun.append((number, channel.begin(request(number))))
        elif begun:
            asked_for, asked = begun.popleft()
            assert number_of(channel.finish(asked)) == asked_for
    for asked_for, asked in begun:
        assert number_of(channel.finish(asked)) == asked_for
    assert set(caller.seen) == {n for n, step in enumerate(steps) if step != "finish"}


def test_a_request_that_has_begun_is_sent_at_once() -> None:
    caller = FlakyCaller()
    channel = channel_of(caller)
    channel.ask(request(0))
    asked = channel.begin(request(1))
    assert (caller.seen, asked.answer) == ([0, 1], None)
    assert number_of(channel.ask(request(2))) == 2
    assert asked.answer is not None, "it was read before the answer to the next request"
    assert number_of(channel.finish(asked)) == 1
    assert caller.seen == [0, 1, 2]


def test_a_request_whose_answer_is_lost_is_sent_again() -> None:
    caller = FlakyCaller([FINE, ANSWER_LOST])
    channel = channel_of(caller)
    channel.ask(request(0))
    assert number_of(channel.finish(channel.begin(request(1)))) == 1
    assert caller.seen == [0, 1, 1]


def test_a_task_that_stays_away_is_named() -> None:
    channel = channel_of(FlakyCaller([LOST] * 100_000), join=0.01)
    with pytest.raises(MissingTaskError, match=r"chief 0 \(localhost:1\) must answer within 0\.01 s"):
        channel.finish(channel.begin(request(0)))
