"""Waiting for a step of other workers."""

from __future__ import annotations

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks._base import GLOBAL_STEP, SessionRunContext, SessionRunHook


class GlobalStepWaiterHook(SessionRunHook):
    """Starts if training has come to a step already.

    In TensorFlow it starts workers, which each train at a speed of their own, one after another. Here all workers make
    each step together: none can wait for the others to make some.

    Args:
        wait_until_step: The global step.

    Source: tf.estimator.GlobalStepWaiterHook.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._is_started = False

    def begin(self) -> None:
        """Starts anew."""
        self._is_started = False

    def before_run(self, run_context: SessionRunContext) -> None:
        """Looks at the global step.

        Raises:
            ArgumentError: If it would have to wait.
        """
        if self._is_started:
            return
        step = 0 if self._wait_until_step <= 0 else int(run_context.session.run(GLOBAL_STEP))
        if step < self._wait_until_step:
            raise ArgumentError(
                "All workers make each step together, so none can wait for a step of the others: received "
                f"GlobalStepWaiterHook(wait_until_step={self._wait_until_step!r}) at global step {step}. Leave the "
                "hook out."
            )
        self._is_started = True

    def next_step(self, step: int) -> int | None:
        """Returns the next step, until it has started."""
        return None if self._is_started else step + 1
