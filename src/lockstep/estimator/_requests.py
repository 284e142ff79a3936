"""Checks of what `train`, `evaluate` and `predict` are asked for."""

from __future__ import annotations

from typing import Any

from lockstep.errors import ArgumentError
from lockstep.estimator import _checks


def demand_trainer(config: Any) -> None:
    """Raises `ArgumentError` unless this task trains."""
    if config.task_type in ("evaluator", "ps"):
        raise ArgumentError(
            "Train has been called wrong configuration. Please use `tf.estimator.train_and_evaluate` which calls "
            f"proper API according to given configuration. Received: task {config.task_type} {config.task_id}, which "
            "does not train."
        )


def demand_steps(steps: Any, max_steps: Any) -> None:
    """Raises `ArgumentError` unless both are `None`, or one is a whole number above 0."""
    if steps is not None and max_steps is not None:
        raise ArgumentError("Can not provide both steps and max_steps. Received: both. Give one of them.")
    _checks.steps(steps, "steps")
    _checks.steps(max_steps, "max_steps")


def listeners(values: Any) -> tuple[Any, ...]:
    """Returns listeners as a tuple; raises `ArgumentError` unless all are `CheckpointSaverListener`s."""
    from lockstep.estimator._hooks import CheckpointSaverListener

    return _checks.instances(values, CheckpointSaverListener, "saving_listeners", "MyListener()")
