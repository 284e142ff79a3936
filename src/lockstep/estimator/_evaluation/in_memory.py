"""Evaluation during training, without a checkpoint.

Source: tensorflow_estimator/python/estimator/hooks/hooks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import (
    GLOBAL_STEP,
    SecondOrStepTimer,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from lockstep.estimator._types import EstimatorLike, Session

if TYPE_CHECKING:
    from lockstep.estimator._run_config import RunConfig


class InMemoryEvaluatorHook(SessionRunHook):
    """Hook that evaluates the variables in training: at the start, every so many steps, and at the end.

    Args:
        estimator: The Estimator that trains, on one machine.
        input_fn: See `Estimator.evaluate`.
        steps: See `Estimator.evaluate`; None: until the input ends.
        hooks: See `Estimator.evaluate`.
        name: See `Estimator.evaluate`.
        every_n_iter: Steps between actions, counted from the first step of this run.

    Source: tf.estimator.experimental.InMemoryEvaluatorHook.

    Raises:
        ArgumentError: If an argument is invalid, or there are several workers.
    """

    def __init__(
        self,
        estimator: EstimatorLike,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        name: str | None = None,
        every_n_iter: int | None = 100,
    ) -> None:
        if every_n_iter is None or every_n_iter <= 0:
            raise ArgumentError(f"invalid every_n_iter={every_n_iter}. It is a number of steps, at least 1.")
        if steps is not None and steps <= 0:
            raise ArgumentError(f"Must specify steps > 0, given: {steps}. None evaluates until the input ends.")
        _check_alone(estimator.config)
        self._estimator = estimator
        self._input_fn = input_fn
        self._steps = steps
        self._hooks = _check_hooks(hooks)
        self._name = name
        self._timer = SecondOrStepTimer(every_steps=every_n_iter)
        self._first_step = 0

    def begin(self) -> None:
        """Starts counting."""
        self._timer.reset()

    def after_create_session(self, session: Session, coord: object) -> None:
        """Evaluates the first values."""
        self._first_step = int(session.run(GLOBAL_STEP))
        self._evaluate(session, 0)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Evaluates, if it is time to."""
        done = int(run_context.session.run(GLOBAL_STEP)) - self._first_step
        if self._timer.should_trigger_for_step(done):
            self._evaluate(run_context.session, done)

    def end(self, session: Session) -> None:
        """Evaluates the last values."""
        self._evaluate(session, int(session.run(GLOBAL_STEP)) - self._first_step)

    def next_step(self, step: int) -> int:
        """Returns the next step after which it evaluates."""
        return self._first_step + self._timer.next_trigger(step - self._first_step)

    def _evaluate(self, session: Session, done: int) -> None:
        self._estimator._evaluate_in_memory(session, self._input_fn, self._steps, self._hooks, self._name)
        self._timer.update_last_triggered_step(done)


def _check_alone(config: RunConfig) -> None:
    if config.num_ps_replicas > 0 or config.num_worker_replicas > 1:
        raise ArgumentError(
            "InMemoryEvaluator supports only single machine (aka Local) setting. Received: "
            f"{config.num_worker_replicas} workers and {config.num_ps_replicas} parameter servers. Use "
            "train_and_evaluate, which evaluates checkpoints."
        )


def _check_hooks(hooks: Sequence[Any] | None) -> list[SessionRunHook]:
    wrong = [hook for hook in hooks or () if not isinstance(hook, SessionRunHook)]
    if wrong:
        raise ArgumentError(
            f"Hooks must be a SessionRunHook, given: {wrong[0]!r}. Derive its class from "
            "lockstep.estimator.SessionRunHook."
        )
    return list(hooks or ())
