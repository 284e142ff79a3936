"""Steps per second."""

from __future__ import annotations

import logging
import os
from typing import Any

from lockstep import summary as event_files
from lockstep.errors import ArgumentError
from lockstep.estimator import summary
from lockstep.estimator._hooks._base import (
    GLOBAL_STEP,
    GLOBAL_STEP_ARGS,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from lockstep.estimator._hooks._timer import SecondOrStepTimer
from lockstep.estimator._types import Session

_log = logging.getLogger("lockstep")
_TAG = f"{GLOBAL_STEP}/sec"
_WARNINGS = 5


class StepCounterHook(SessionRunHook):
    """Logs `global_step/sec` and writes it for TensorBoard.

    Args:
        every_n_steps: Steps between actions.
        every_n_secs: Seconds between actions; one of the two must be None.
        output_dir: To which directory to write, if no writer is given.
        summary_writer: A `lockstep.estimator.summary.FileWriter`. With neither, only the log is written.

    Source: tf.estimator.StepCounterHook.

    Raises:
        ArgumentError: If it is not clear when.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: Any = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ArgumentError(
                "exactly one of every_n_steps and every_n_secs should be provided. Received: "
                f"every_n_steps={every_n_steps!r}, every_n_secs={every_n_secs!r}; give None for the other."
            )
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        self._last_step: int | None = None
        self._warned = 0

    def begin(self) -> None:
        """Finds the writer, and starts counting."""
        self._timer.reset()
        self._last_step = None
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = summary.FileWriterCache.get(self._output_dir)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks for the global step."""
        return GLOBAL_STEP_ARGS

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Logs and writes, if it is time to; warns if the step stands still."""
        step = int(run_values.results)
        if self._timer.should_trigger_for_step(step):
            seconds, steps = self._timer.update_last_triggered_step(step)
            if seconds is not None and steps is not None:
                self._write(steps / max(seconds, 1e-9), step)
        if step == self._last_step and self._warned < _WARNINGS:
            self._warn(step)
        self._last_step = step

    def end(self, session: Session) -> None:
        """Flushes the event file."""
        if self._summary_writer is not None:
            self._summary_writer.flush()

    def next_step(self, step: int) -> int:
        """Returns the next step that it logs after."""
        return self._timer.next_trigger(step)

    def _write(self, steps_per_sec: float, step: int) -> None:
        if self._summary_writer is not None:
            value = event_files.Summary.Value(tag=_TAG, simple_value=steps_per_sec)
            self._summary_writer.add_summary(event_files.Summary(value=[value]), step)
        _log.info("%s: %g", _TAG, steps_per_sec)

    def _warn(self, step: int) -> None:
        self._warned += 1
        _log.warning(
            "It seems that global step (tf.train.get_global_step) has not been increased. Current value (could be "
            "stable): %s vs previous value: %s. You could increase the global step by passing "
            "tf.train.get_global_step() to Optimizer.apply_gradients or Optimizer.minimize.",
            step,
            self._last_step,
        )
