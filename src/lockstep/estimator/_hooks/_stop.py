"""The hook that stops at a step."""

from __future__ import annotations

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks._base import (
    GLOBAL_STEP,
    GLOBAL_STEP_ARGS,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from lockstep.estimator._types import Session


class StopAtStepHook(SessionRunHook):
    """Requests stop after a number of steps, or at a step.

    Args:
        num_steps: Number of steps.
        last_step: The global step at which to stop; one of the two must be given.

    Source: tf.estimator.StopAtStepHook.

    Raises:
        ArgumentError: If none or both are given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ArgumentError("One of num_steps or last_step must be specified. Received: neither; give one.")
        if num_steps is not None and last_step is not None:
            raise ArgumentError(
                "Only one of num_steps or last_step can be specified. Received: "
                f"num_steps={num_steps!r} and last_step={last_step!r}; leave one out."
            )
        self._num_steps = num_steps
        self._last_step = last_step

    @property
    def last_step(self) -> int | None:
        """Returns the global step at which to stop; None before the session exists."""
        return self._last_step

    def after_create_session(self, session: Session, coord: object) -> None:
        """Computes the last step, if steps are to be counted from here."""
        if self._last_step is None:
            self._last_step = int(session.run(GLOBAL_STEP)) + (self._num_steps or 0)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks for the global step."""
        return GLOBAL_STEP_ARGS

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Requests stop, if the last step is done."""
        if self._last_step is not None and int(run_values.results) >= self._last_step:
            run_context.request_stop()

    def next_step(self, step: int) -> int:
        """Returns the last step."""
        return step + 1 if self._last_step is None else max(step + 1, self._last_step)
