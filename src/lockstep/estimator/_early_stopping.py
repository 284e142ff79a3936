"""Early stopping of training, by the results of evaluations.

Source: tensorflow_estimator/python/estimator/early_stopping.py, hooks/hooks.py.
"""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lockstep import summary
from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopAtStepHook,
)
from lockstep.estimator._hooks._base import GLOBAL_STEP_ARGS
from lockstep.estimator._types import EstimatorLike, Session

_log = logging.getLogger("lockstep")
_WAIT_AFTER_FILE_CHECK_SECS = 30


def make_early_stopping_hook(
    estimator: EstimatorLike,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Returns a hook that ends training when a function returns True.

    In a job of several workers every one needs the hook; the function is called on the chief only.

    Args:
        estimator: The Estimator.
        should_stop_fn: A function without arguments that returns whether to stop, called after the first step and at
            the interval.
        run_every_secs: Seconds between calls.
        run_every_steps: Steps between calls; one of the two must be None.

    Source: tf.estimator.experimental.make_early_stopping_hook.

    Raises:
        ArgumentError: If an argument is invalid.
    """
    _check_estimator(estimator)
    # TensorFlow refuses seconds with every strategy, also on one machine (its condition tests a generator, which is
    # always true); here the chief decides for all workers, so seconds are no problem.
    if run_every_secs is not None and run_every_steps is not None:
        raise ArgumentError(
            "Only one of `run_every_secs` and `run_every_steps` must be set. Received: "
            f"run_every_secs={run_every_secs!r}, run_every_steps={run_every_steps!r}; with steps, give "
            "run_every_secs=None."
        )
    if not callable(should_stop_fn):
        raise ArgumentError(f"`should_stop_fn` must be callable. Received: {should_stop_fn!r}.")
    return _EarlyStoppingHook(should_stop_fn, SecondOrStepTimer(run_every_secs, run_every_steps))


def stop_if_higher_hook(
    estimator: EstimatorLike,
    metric_name: str,
    threshold: float,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Returns a hook that ends training when an evaluation's metric is above a threshold.

    Args:
        estimator: The Estimator.
        metric_name: The metric's name, such as "accuracy".
        threshold: The value above which to stop.
        eval_dir: The evaluations' directory; default: `estimator.eval_dir()`. Give it for named evaluations.
        min_steps: Evaluations at earlier steps do not count.
        run_every_secs: See `make_early_stopping_hook`.
        run_every_steps: See `make_early_stopping_hook`.

    Source: tf.estimator.experimental.stop_if_higher_hook.

    Raises:
        ArgumentError: If an argument is invalid; while training, if evaluations do not have the metric.
    """
    rule = partial(_has_crossed, metric_name, threshold, min_steps, operator.gt, "greater than")
    return _make_hook(estimator, rule, eval_dir, run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: EstimatorLike,
    metric_name: str,
    threshold: float,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Returns a hook that ends training when an evaluation's metric is below a threshold.

    Args:
        estimator: The Estimator.
        metric_name: The metric's name, such as "loss".
        threshold: The value below which to stop.
        eval_dir: The evaluations' directory; default: `estimator.eval_dir()`. Give it for named evaluations.
        min_steps: Evaluations at earlier steps do not count.
        run_every_secs: See `make_early_stopping_hook`.
        run_every_steps: See `make_early_stopping_hook`.

    Source: tf.estimator.experimental.stop_if_lower_hook.

    Raises:
        ArgumentError: If an argument is invalid; while training, if evaluations do not have the metric.
    """
    rule = partial(_has_crossed, metric_name, threshold, min_steps, operator.lt, "less than")
    return _make_hook(estimator, rule, eval_dir, run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: EstimatorLike,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Returns a hook that ends training when a metric has not increased for some steps.

    Args:
        estimator: The Estimator.
        metric_name: The metric's name, such as "accuracy".
        max_steps_without_increase: For how many steps after the best evaluation.
        eval_dir: The evaluations' directory; default: `estimator.eval_dir()`. Give it for named evaluations.
        min_steps: Evaluations at earlier steps do not count.
        run_every_secs: See `make_early_stopping_hook`.
        run_every_steps: See `make_early_stopping_hook`.

    Source: tf.estimator.experimental.stop_if_no_increase_hook.

    Raises:
        ArgumentError: If an argument is invalid; while training, if evaluations do not have the metric.
    """
    rule = partial(_has_stalled, metric_name, max_steps_without_increase, min_steps, operator.gt, "increase")
    return _make_hook(estimator, rule, eval_dir, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: EstimatorLike,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | os.PathLike[str] | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """Returns a hook that ends training when a metric has not decreased for some steps.

    Args:
        estimator: The Estimator.
        metric_name: The metric's name, such as "loss".
        max_steps_without_decrease: For how many steps after the best evaluation.
        eval_dir: The evaluations' directory; default: `estimator.eval_dir()`. Give it for named evaluations.
        min_steps: Evaluations at earlier steps do not count.
        run_every_secs: See `make_early_stopping_hook`.
        run_every_steps: See `make_early_stopping_hook`.

    Source: tf.estimator.experimental.stop_if_no_decrease_hook.

    Raises:
        ArgumentError: If an argument is invalid; while training, if evaluations do not have the metric.
    """
    rule = partial(_has_stalled, metric_name, max_steps_without_decrease, min_steps, operator.lt, "decrease")
    return _make_hook(estimator, rule, eval_dir, run_every_secs, run_every_steps)


def make_stop_at_checkpoint_step_hook(
    estimator: EstimatorLike, last_step: int, wait_after_file_check_secs: float = _WAIT_AFTER_FILE_CHECK_SECS
) -> SessionRunHook:
    """Returns a hook that ends training at a step, whose checkpoint is then written.

    Args:
        estimator: The Estimator.
        last_step: The global step.
        wait_after_file_check_secs: Must be left out: as all workers stop after the same step, none waits for the
            chief's checkpoint.

    Source: tf.estimator.experimental.make_stop_at_checkpoint_step_hook.

    Raises:
        ArgumentError: If an argument is invalid.
    """
    _check_estimator(estimator)
    if wait_after_file_check_secs != _WAIT_AFTER_FILE_CHECK_SECS:
        raise ArgumentError(
            "All workers stop after the same step, and none waits for a file: received "
            f"wait_after_file_check_secs={wait_after_file_check_secs!r}. Leave it out."
        )
    # TensorFlow's hook polls for the chief's file, as its workers stop at steps of their own.
    return StopAtStepHook(last_step=last_step)


def read_eval_metrics(eval_dir: str | os.PathLike[str]) -> dict[int, dict[str, float]]:
    """Returns the results of evaluations: metrics by global step, in ascending order.

    Args:
        eval_dir: The evaluations' directory; if it does not exist, there are no results.

    Source: tf.estimator.experimental.read_eval_metrics.
    """
    return summary.scalars(eval_dir)


class _EarlyStoppingHook(SessionRunHook):
    """Asks on the chief whether to stop; the loop stops all workers after the same step.

    TensorFlow's workers look at a variable that the chief sets, each between two steps of its own.
    """

    def __init__(self, should_stop_fn: Callable[[], bool], timer: SecondOrStepTimer) -> None:
        self._should_stop_fn = should_stop_fn
        self._timer = timer
        self._is_chief = False

    def begin(self) -> None:
        self._timer.reset()

    def after_create_session(self, session: Session, coord: object) -> None:
        self._is_chief = session.is_chief

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return GLOBAL_STEP_ARGS

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_values.results)
        if not self._is_chief or not self._timer.should_trigger_for_step(step):
            return
        self._timer.update_last_triggered_step(step)
        if self._should_stop_fn():
            _log.info("Requesting early stopping at global step %d", step)
            run_context.request_stop()

    def next_step(self, step: int) -> int | None:
        return self._timer.next_trigger(step) if self._is_chief else None


def _has_crossed(
    metric: str,
    threshold: float,
    min_steps: int,
    is_beyond: Callable[[float, float], bool],
    relation: str,
    eval_dir: str | os.PathLike[str],
) -> bool:
    """Returns whether a metric has crossed a threshold."""
    # In any evaluation: the newest one may be below it again, and the hook does not look after each.
    for step, value in _history(eval_dir, metric, min_steps):
        if is_beyond(value, threshold):
            _log.info(
                'At step %s, metric "%s" has value %s which is %s the configured threshold (%s) for early stopping.',
                *(step, metric, value, relation, threshold),
            )
            return True
    return False


def _has_stalled(
    metric: str,
    max_steps: int,
    min_steps: int,
    is_better: Callable[[float, float], bool],
    change: str,
    eval_dir: str | os.PathLike[str],
) -> bool:
    """Returns whether a metric has not improved for some steps."""
    best: tuple[int, float] | None = None
    for step, value in _history(eval_dir, metric, min_steps):
        if best is None or is_better(value, best[1]):
            best = (step, value)
        # By steps of evaluations, not of the training: without new evaluations it goes on, as in TensorFlow.
        if step - best[0] >= max_steps:
            _log.info(
                'No %s in metric "%s" for %s steps, which is greater than or equal to max steps (%s) configured for '
                "early stopping.",
                *(change, metric, step - best[0], max_steps),
            )
            return True
    return False


def _make_hook(
    estimator: EstimatorLike,
    rule: Callable[[Any], bool],
    eval_dir: str | os.PathLike[str] | None,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> SessionRunHook:
    _check_estimator(estimator)
    directory = estimator.eval_dir() if eval_dir is None else eval_dir
    return make_early_stopping_hook(estimator, lambda: rule(directory), run_every_secs, run_every_steps)


def _history(eval_dir: str | os.PathLike[str], metric: str, min_steps: int) -> Iterator[tuple[int, float]]:
    """Yields the steps of evaluations, from `min_steps` on, and the metric there."""
    evaluated = {step: metrics for step, metrics in read_eval_metrics(eval_dir).items() if step >= min_steps}
    # An evaluation may lack it, such as one of another name in the same directory; all of them may not.
    if evaluated and not any(metric in metrics for metrics in evaluated.values()):
        names = sorted({name for metrics in evaluated.values() for name in metrics})
        raise ArgumentError(
            f"Early stopping looks at a metric of the evaluations in {os.fspath(eval_dir)}: received "
            f"metric_name={metric!r}, but there are {', '.join(names)}."
        )
    for step, metrics in evaluated.items():
        if metric in metrics:
            yield step, metrics[metric]


def _check_estimator(estimator: EstimatorLike) -> None:
    if not callable(getattr(estimator, "eval_dir", None)):
        raise ArgumentError(f"`estimator` must be an Estimator. Received: {estimator!r} of {type(estimator)}.")
