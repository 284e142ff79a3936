"""Evaluation amid training."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator._evaluation.evaluate import InMemoryEvaluatorHook
from lockstep.estimator._hooks import SessionRunHook
from tests.estimator.hooks.fakes import FakeSession, Run, run_each, run_paced


class FakeEstimator:
    """Writes down how it is asked to evaluate."""

    def __init__(self, workers: int = 1, servers: int = 0) -> None:
        self.config = SimpleNamespace(num_worker_replicas=workers, num_ps_replicas=servers)
        self.evaluated: list[tuple[int, Any]] = []

    def _evaluate_in_memory(self, session: FakeSession, *arguments: Any) -> None:
        self.evaluated.append((session.step, arguments))


def input_fn() -> None: ...


@pytest.mark.parametrize("run", [run_each, run_paced])
@pytest.mark.parametrize(
    ("every", "start", "steps", "evaluated"),
    [(4, 0, 10, [0, 4, 8, 10]), (4, 3, 5, [3, 7, 8]), (4, 0, 4, [0, 4, 4]), (100, 0, 0, [0, 0])],
)
def test_when_it_evaluates(run: Callable[..., Run], every: int, start: int, steps: int, evaluated: list[int]) -> None:
    estimator = FakeEstimator()
    hook = InMemoryEvaluatorHook(estimator, input_fn, every_n_iter=every)
    run([hook], steps, FakeSession(start))
    assert [step for step, _ in estimator.evaluated] == evaluated


def test_what_it_evaluates() -> None:
    estimator, inner = FakeEstimator(), SessionRunHook()
    run_each([InMemoryEvaluatorHook(estimator, input_fn, steps=3, hooks=[inner], name="holdout")], 1)
    assert estimator.evaluated == [(step, (input_fn, 3, [inner], "holdout")) for step in (0, 1)]


def test_a_second_run_starts_anew() -> None:
    estimator = FakeEstimator()
    hook = InMemoryEvaluatorHook(estimator, input_fn, every_n_iter=4)
    for start in (0, 6):
        run_each([hook], 6, FakeSession(start))
    assert [step for step, _ in estimator.evaluated] == [0, 4, 6, 6, 10, 12]


@pytest.mark.parametrize(
    ("estimator", "arguments", "message"),
    [
        (FakeEstimator(), {"every_n_iter": 0}, "invalid every_n_iter=0"),
        (FakeEstimator(), {"every_n_iter": None}, "invalid every_n_iter=None"),
        (FakeEstimator(), {"steps": 0}, "Must specify steps > 0, given: 0"),
        (FakeEstimator(), {"hooks": [object()]}, "Hooks must be a SessionRunHook, given: <object"),
        (FakeEstimator(workers=4), {}, "supports only single machine"),
        (FakeEstimator(servers=1), {}, "supports only single machine"),
    ],
)
def test_what_it_refuses(estimator: FakeEstimator, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        InMemoryEvaluatorHook(estimator, input_fn, **arguments)
