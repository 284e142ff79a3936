"""When hooks act."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import SecondOrStepTimer
from lockstep.estimator._hooks._timer import NeverTriggerTimer
from tests.estimator.hooks.conftest import Clock


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"every_secs": None, "every_steps": None},
        {"every_secs": 2.0, "every_steps": 10},
        {"every_secs": -1},
        {"every_steps": 0},
    ],
)
def test_exactly_one_of_secs_and_steps(arguments: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="every_secs"):
        SecondOrStepTimer(**arguments)


def test_every_secs(clock: Clock) -> None:
    timer = SecondOrStepTimer(every_secs=1.0)
    assert timer.should_trigger_for_step(1)
    timer.update_last_triggered_step(1)
    assert not timer.should_trigger_for_step(1)
    assert not timer.should_trigger_for_step(2)
    clock.tick(1.0)
    assert not timer.should_trigger_for_step(1)
    assert timer.should_trigger_for_step(2)


def test_every_steps() -> None:
    timer = SecondOrStepTimer(every_steps=3)
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(1)
    timer.update_last_triggered_step(1)
    assert [step for step in range(8) if timer.should_trigger_for_step(step)] == [4, 5, 6, 7]
    assert timer.last_triggered_step() == 1
    timer.reset()
    assert timer.should_trigger_for_step(1)


def test_what_has_passed_since_the_last_time(clock: Clock) -> None:
    timer = SecondOrStepTimer(every_steps=1)
    assert timer.update_last_triggered_step(1) == (None, None)
    clock.tick(0.5)
    assert timer.update_last_triggered_step(5) == (0.5, 4)
    clock.tick(0.25)
    assert timer.update_last_triggered_step(7) == (0.25, 2)


@given(every=st.integers(1, 20), last=st.integers(0, 50), step=st.integers(0, 100))
def test_the_next_step_is_the_first_that_triggers(every: int, last: int, step: int) -> None:
    timer = SecondOrStepTimer(every_steps=every)
    assert timer.next_trigger(step) == step + 1
    timer.update_last_triggered_step(last)
    following = timer.next_trigger(step)
    assert timer.should_trigger_for_step(following) == (following > last)
    assert not any(timer.should_trigger_for_step(s) for s in range(step + 1, following))


def test_seconds_are_approached_at_the_speed_so_far(clock: Clock) -> None:
    timer = SecondOrStepTimer(every_secs=10)
    timer.update_last_triggered_step(0)
    assert timer.next_trigger(0) == 1
    clock.tick(0.01)
    # 100 steps a second: half of the next second's.
    assert timer.next_trigger(1) == 51
    clock.tick(9.97)
    # 0.02 seconds are left, for two steps.
    assert timer.next_trigger(998) == 999
    clock.tick(0.02)
    assert timer.next_trigger(1000) == 1001
    assert timer.should_trigger_for_step(1000)


def test_never() -> None:
    timer = NeverTriggerTimer()
    assert not timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(1) == (None, None)
    assert timer.last_triggered_step() is None
    assert timer.next_trigger(1) is None
    timer.reset()
