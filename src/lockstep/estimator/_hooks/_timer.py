"""Timers: triggers of hooks, every so many steps or seconds.

Source: SecondOrStepTimer of tensorflow/python/training/basic_session_run_hooks.py.
"""

from __future__ import annotations

import time

from lockstep.errors import ArgumentError

# The look-ahead of a timer of seconds: runs of at most about a second, so that steps that become slower delay an action
# by no more than that.
_LONGEST_LOOK_AHEAD_SECS = 1.0


class SecondOrStepTimer:
    """A timer that triggers first at once, then every N seconds or every N steps.

    Args:
        every_secs: Seconds between triggers.
        every_steps: Steps between triggers; one of the two must be given.

    Source: tf.compat.v1.train.SecondOrStepTimer.

    Raises:
        ArgumentError: If none or both are given, or it is negative.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is None and every_steps is None:
            raise ArgumentError("Either every_secs or every_steps should be provided. Received: neither; give one.")
        if every_secs is not None and every_steps is not None:
            raise ArgumentError(
                f"Can not provide both every_secs and every_steps. Received: every_secs={every_secs!r} and "
                f"every_steps={every_steps!r}; leave one out, or give None."
            )
        if (every_secs or 0) < 0 or (every_steps is not None and every_steps < 1):
            raise ArgumentError(
                "every_secs is at least 0 and every_steps at least 1: received "
                f"every_secs={every_secs!r}, every_steps={every_steps!r}. Choose a larger one."
            )
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Forgets past actions; the next call triggers."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Returns whether to act after a step.

        Args:
            step: The number of the step; a second time for the same one is never due.
        """
        # TensorFlow's rule: the first call triggers, and none twice for the same step, as at a restart from it.
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self._every_secs is not None:
            return time.monotonic() >= self._last_time + self._every_secs
        return step >= self._last_step + (self._every_steps or 1)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Records an action.

        Args:
            step: The step of the action.

        Returns:
            The seconds and the steps since the action before; None and None if it is the first.
        """
        now, last = time.monotonic(), self._last_step
        elapsed = (None, None) if last is None else (now - self._last_time, step - last)
        self._last_step, self._last_time = step, now
        return elapsed

    def last_triggered_step(self) -> int | None:
        """Returns the step of the last action, or None."""
        return self._last_step

    def next_trigger(self, step: int) -> int:
        """Returns the next step after `step` at which to ask again: exact for steps, cautious for seconds."""
        if self._last_step is None:
            return step + 1
        if self._every_steps is not None:
            return max(step + 1, self._last_step + self._every_steps)
        passed = time.monotonic() - self._last_time
        left = min((self._every_secs or 0) - passed, _LONGEST_LOOK_AHEAD_SECS)
        # Half of the steps that fit into the time left, at the speed so far: the action comes late only if steps become
        # twice as slow meanwhile.
        steps = int((step - self._last_step) / passed * left / 2) if passed > 0 and left > 0 else 0
        return step + max(1, steps)


class NeverTriggerTimer:
    """A timer that never triggers: that of `LoggingTensorHook(at_end=True)`. Source: NeverTriggerTimer, there."""

    def reset(self) -> None: ...

    def should_trigger_for_step(self, step: int) -> bool:
        return False

    def update_last_triggered_step(self, step: int) -> tuple[None, None]:
        return None, None

    def last_triggered_step(self) -> None: ...

    def next_trigger(self, step: int) -> None: ...


Timer = SecondOrStepTimer | NeverTriggerTimer
