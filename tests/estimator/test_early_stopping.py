"""Ending training early, by what evaluations have written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator import _early_stopping as early
from lockstep.estimator._hooks import StopAtStepHook, _timer, next_call
from lockstep.estimator.summary import FileWriter
from lockstep.summary import Summary
from tests.estimator.hooks.fakes import FakeSession, run_each, run_paced

EVALUATIONS = [(1000, 0.8, 0.5), (2000, 0.7, 0.6), (3000, 0.4, 0.7), (3500, 0.41, 0.68)]


class FakeEstimator:
    """Says where its evaluations write."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = str(model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        return f"{self.model_dir}/eval_{name}" if name else f"{self.model_dir}/eval"


def evaluate(directory: str | Path, evaluations: list[tuple[int, float, float]] = EVALUATIONS) -> None:
    """Writes what evaluations of (step, loss, accuracy) write."""
    with FileWriter(directory) as writer:
        for step, loss, accuracy in evaluations:
            values = [Summary.Value(tag=t, simple_value=v) for t, v in (("loss", loss), ("accuracy", accuracy))]
            writer.add_summary(Summary(value=values), step)


@pytest.fixture
def estimator(tmp_path: Path) -> FakeEstimator:
    estimator = FakeEstimator(tmp_path)
    evaluate(estimator.eval_dir())
    return estimator


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.INFO, "lockstep"):
        yield caplog


def test_read_eval_metrics(tmp_path: Path) -> None:
    evaluate(tmp_path / "eval", [(2000, 3, 4), (1000, 1, 2), (3000, 5, 6)])
    found = early.read_eval_metrics(tmp_path / "eval")
    assert list(found.items()) == [
        (1000, {"loss": 1.0, "accuracy": 2.0}),
        (2000, {"loss": 3.0, "accuracy": 4.0}),
        (3000, {"loss": 5.0, "accuracy": 6.0}),
    ]
    assert early.read_eval_metrics(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("make", "arguments", "stops"),
    [
        (early.stop_if_higher_hook, ("accuracy", 0.8), False),
        (early.stop_if_higher_hook, ("accuracy", 0.6, None, 4000), False),
        (early.stop_if_higher_hook, ("accuracy", 0.6), True),
        (early.stop_if_higher_hook, ("accuracy", 0.695, None, 3000), True),
        (early.stop_if_higher_hook, ("accuracy", 0.695, None, 3001), False),
        (early.stop_if_lower_hook, ("loss", 0.3), False),
        (early.stop_if_lower_hook, ("loss", 0.5, None, 4000), False),
        (early.stop_if_lower_hook, ("loss", 0.5), True),
        (early.stop_if_no_increase_hook, ("accuracy", 1500), False),
        (early.stop_if_no_increase_hook, ("accuracy", 500, None, 4000), False),
        (early.stop_if_no_increase_hook, ("accuracy", 500), True),
        (early.stop_if_no_increase_hook, ("accuracy", 501), False),
        (early.stop_if_no_decrease_hook, ("loss", 1500), False),
        (early.stop_if_no_decrease_hook, ("loss", 500, None, 4000), False),
        (early.stop_if_no_decrease_hook, ("loss", 500), True),
    ],
)
def test_rules(make: Callable[..., Any], arguments: tuple[Any, ...], stops: bool, estimator: FakeEstimator) -> None:
    assert run_each([make(estimator, *arguments)], 1).stopped_at == (1 if stops else None)


def test_the_lines_of_a_threshold(estimator: FakeEstimator, log: pytest.LogCaptureFixture) -> None:
    run_each([early.stop_if_higher_hook(estimator, "accuracy", 0.625)], 1, FakeSession(41))
    run_each([early.stop_if_lower_hook(estimator, "loss", 1)], 1)
    assert log.messages == [
        'At step 3000, metric "accuracy" has value 0.699999988079071 which is greater than the configured threshold '
        "(0.625) for early stopping.",
        "Requesting early stopping at global step 42",
        'At step 1000, metric "loss" has value 0.800000011920929 which is less than the configured threshold (1) for '
        "early stopping.",
        "Requesting early stopping at global step 1",
    ]


def test_the_lines_of_patience(estimator: FakeEstimator, log: pytest.LogCaptureFixture) -> None:
    run_each([early.stop_if_no_increase_hook(estimator, "accuracy", 500)], 1)
    run_each([early.stop_if_no_decrease_hook(estimator, "loss", 400)], 1)
    lines = [
        'No {} in metric "{}" for {} steps, which is greater than or equal to max steps ({}) configured for early '
        "stopping.",
        "Requesting early stopping at global step 1",
    ]
    assert log.messages == [
        *(lines[0].format("increase", "accuracy", 500, 500), lines[1]),
        *(lines[0].format("decrease", "loss", 500, 400), lines[1]),
    ]


def test_evaluations_of_another_name(estimator: FakeEstimator) -> None:
    directory = estimator.eval_dir("other")
    hook = early.stop_if_higher_hook(estimator, "accuracy", 0.5, eval_dir=directory)
    assert run_each([hook], 1).stopped_at is None
    evaluate(directory)
    assert run_each([hook], 1).stopped_at == 1


def test_evaluations_that_come_while_training(tmp_path: Path) -> None:
    estimator = FakeEstimator(tmp_path)
    hook = early.stop_if_lower_hook(estimator, "loss", 0.5, run_every_secs=None, run_every_steps=10)
    run = run_each([hook], 50, after=lambda step: evaluate(estimator.eval_dir()) if step == 15 else None)
    assert run.stopped_at == 21


def test_a_metric_that_no_evaluation_has(estimator: FakeEstimator) -> None:
    for make in (early.stop_if_higher_hook, early.stop_if_no_decrease_hook):
        with pytest.raises(ArgumentError, match="metric_name='auc', but there are accuracy, loss"):
            run_each([make(estimator, "auc", 1)], 1)


def test_a_metric_that_some_evaluations_do_not_have(estimator: FakeEstimator) -> None:
    with FileWriter(estimator.eval_dir()) as writer:
        writer.add_summary(Summary(value=[Summary.Value(tag="other", simple_value=1)]), 1500)
    assert run_each([early.stop_if_no_increase_hook(estimator, "accuracy", 500)], 1).stopped_at == 1
    assert run_each([early.stop_if_no_increase_hook(estimator, "accuracy", 1500)], 1).stopped_at is None


@pytest.mark.parametrize(("max_steps", "threshold", "stops"), [(1500, 0.3, False), (1500, 0.5, True), (500, 0.3, True)])
def test_several_hooks(max_steps: int, threshold: float, stops: bool, estimator: FakeEstimator) -> None:
    hooks = [
        early.stop_if_no_decrease_hook(estimator, "loss", max_steps),
        early.stop_if_lower_hook(estimator, "loss", threshold),
    ]
    assert run_each(hooks, 1).stopped_at == (1 if stops else None)


@pytest.mark.parametrize("run", [run_each, run_paced])
def test_every_n_steps(run: Callable[..., Any], estimator: FakeEstimator, log: pytest.LogCaptureFixture) -> None:
    asked = []
    hook = early.make_early_stopping_hook(
        estimator, lambda: asked.append(1) or len(asked) == 3, run_every_secs=None, run_every_steps=100
    )
    assert run([hook], 1000, FakeSession(50)).stopped_at == 251
    assert log.messages == ["Requesting early stopping at global step 251"]


def test_every_n_secs(estimator: FakeEstimator, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(_timer, "time", SimpleNamespace(monotonic=lambda: now))
    asked = []

    def tick(step: int) -> None:
        nonlocal now
        now += 25

    run_each([early.make_early_stopping_hook(estimator, lambda: asked.append(now) or False)], 10, after=tick)
    assert asked == [25, 100, 175, 250]


def test_only_the_chief_decides(estimator: FakeEstimator) -> None:
    hook = early.make_early_stopping_hook(estimator, lambda: True)
    assert run_each([hook], 3, FakeSession(is_chief=False, is_alone=False)).stopped_at is None
    assert next_call(hook, 3) is None
    assert run_each([hook], 3, FakeSession(is_alone=False)).stopped_at == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"run_every_steps": 100}, "Only one of `run_every_secs` and `run_every_steps` must be set"),
        ({"run_every_secs": None}, "Either every_secs or every_steps should be provided"),
        ({"should_stop_fn": True}, "`should_stop_fn` must be callable"),
        ({"estimator": object()}, "`estimator` must be an Estimator"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str, estimator: FakeEstimator) -> None:
    with pytest.raises(ArgumentError, match=message):
        early.make_early_stopping_hook(**{"estimator": estimator, "should_stop_fn": lambda: True, **arguments})


def test_no_estimator(estimator: FakeEstimator) -> None:
    with pytest.raises(ArgumentError, match="`estimator` must be an Estimator"):
        early.stop_if_higher_hook(None, "accuracy", 1)
    with pytest.raises(ArgumentError, match="`estimator` must be an Estimator"):
        early.make_stop_at_checkpoint_step_hook(None, 1)


def test_stop_at_a_checkpoints_step(estimator: FakeEstimator) -> None:
    hook = early.make_stop_at_checkpoint_step_hook(estimator, 300)
    assert isinstance(hook, StopAtStepHook)
    assert hook.last_step == 300
    with pytest.raises(ArgumentError, match="wait_after_file_check_secs=1"):
        early.make_stop_at_checkpoint_step_hook(estimator, 300, 1)
    with pytest.raises(ArgumentError, match="last_step"):
        early.make_stop_at_checkpoint_step_hook(estimator, None)
