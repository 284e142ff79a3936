"""Stopping at a step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import StopAtStepHook
from tests.estimator.hooks.fakes import FakeSession, Run, run_each, run_paced


@pytest.mark.parametrize("arguments", [{}, {"num_steps": 10, "last_step": 20}])
def test_exactly_one_of_num_steps_and_last_step(arguments: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="num_steps"):
        StopAtStepHook(**arguments)


@pytest.mark.parametrize("run", [run_each, run_paced])
@pytest.mark.parametrize(
    ("arguments", "start", "stopped_at"),
    [
        ({"last_step": 10}, 5, 10),
        ({"last_step": 10}, 9, 10),
        ({"last_step": 10}, 10, 11),
        ({"last_step": 10}, 15, 16),
        ({"num_steps": 10}, 5, 15),
        ({"num_steps": 1}, 0, 1),
        ({"last_step": 100}, 0, None),
    ],
)
def test_where_it_stops(run: Callable[..., Run], arguments: dict[str, int], start: int, stopped_at: int | None) -> None:
    hook = StopAtStepHook(**arguments)
    assert run([hook], 20, FakeSession(start)).stopped_at == stopped_at
    assert hook.last_step is not None


def test_several_steps_at_once() -> None:
    run = run_paced([StopAtStepHook(last_step=50)], 100)
    assert run.called == [[50]]


def test_where_it_counts_from_is_kept_when_a_session_is_made_again() -> None:
    hook = StopAtStepHook(num_steps=10)
    assert hook.last_step is None
    run_each([hook], 3, FakeSession(5))
    hook.after_create_session(FakeSession(8), None)
    assert hook.last_step == 15
