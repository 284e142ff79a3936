"""While tasks wait for others, somebody says for whom."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lockstep._engine.runtime import progress
from lockstep._engine.runtime.waiting import Waits, waiting_and_busy

TASKS = ("worker 0", "worker 1", "worker 2")


def account(where: str, seconds: float, dispatches: int = 3) -> dict[str, Any]:
    return {"where": where, "seconds": seconds, "dispatches": dispatches, "spent": {}}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_wait_names_whom_it_is_for_and_comes_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    clock, notes = Clock(), list[str]()
    waits = Waits(TASKS, notes.append, clock)
    with caplog.at_level(logging.WARNING, "lockstep"):
        for second in range(60):
            clock.now = float(second)
            wait, busy = account(progress.AGREEING, second), account(progress.CALLBACKS, second + 0.5)
            waits.update({0: wait, 1: wait, 2: busy})
    assert notes == caplog.messages
    # At once, when somebody waits at all; then after 5, 10, 20 seconds.
    assert len(notes) == 4
    assert notes[0] == (
        "worker 0, worker 1 wait for worker 2, for 5 s by now: worker 2 has been in callbacks or hooks for 6 s."
    )


def test_a_wait_that_is_over_is_forgotten() -> None:
    notes: list[str] = []
    waits = Waits(TASKS[:2], notes.append, lambda: 0.0)
    stuck = {0: account(progress.AGREEING, 8), 1: account(progress.READING, 8)}
    waits.update(stuck)
    waits.update({0: account(progress.STEP, 0.1), 1: account(progress.STEP, 0.1)})
    waits.update(stuck)
    assert len(notes) == 2 and "worker 0 waits for worker 1" in notes[0]


@pytest.mark.parametrize(
    ("first", "second", "busy"),
    [
        # A long step is under way on all: nobody waits for anybody.
        (account(progress.DEVICES, 30), account(progress.DEVICES, 30), []),
        (account(progress.DEVICES, 30), account(progress.CALLBACKS, 30), [1]),
        # One that is ahead is not waited for.
        (account(progress.DEVICES, 30), account(progress.CALLBACKS, 30, dispatches=4), []),
        (account(progress.DEVICES, 30), account(progress.STEP, 30, dispatches=2), [1]),
        (account(progress.AGREEING, 1), account(progress.CALLBACKS, 1), []),
        (account(progress.AGREEING, 30), account(progress.CALLBACKS, 1), []),
        ({"spent": {}}, account(progress.CALLBACKS, 30), []),
    ],
)
def test_who_is_waited_for(first: dict[str, Any], second: dict[str, Any], busy: list[int]) -> None:
    assert waiting_and_busy({0: first, 1: second})[1] == busy
