"""Checks of arguments of `train`, `evaluate` and `predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.errors import ArgumentError
from lockstep.estimator import _checks

if TYPE_CHECKING:
    from lockstep.estimator._run_config import RunConfig


def check_trainer(config: RunConfig) -> None:
    """Raises `ArgumentError` unless this task trains."""
    if config.task_type in ("evaluator", "ps"):
        raise ArgumentError(
            "Train has been called wrong configuration. Please use `tf.estimator.train_and_evaluate` which calls "
            f"proper API according to given configuration. Received: task {config.task_type} {config.task_id}, which "
            "does not train."
        )


def check_steps(steps: object, max_steps: object) -> None:
    """Raises `ArgumentError` unless both are `None`, or one is a whole number above 0."""
    if steps is not None and max_steps is not None:
        raise ArgumentError("Can not provide both steps and max_steps. Received: both. Give one of them.")
    _checks.steps(steps, "steps")
    _checks.steps(max_steps, "max_steps")


def check_listeners(values: object) -> tuple[Any, ...]:
    """Returns listeners as a tuple; raises `ArgumentError` unless all are `CheckpointSaverListener`s."""
    from lockstep.estimator._hooks import CheckpointSaverListener

    return _checks.instances(values, CheckpointSaverListener, "saving_listeners", "MyListener()")
