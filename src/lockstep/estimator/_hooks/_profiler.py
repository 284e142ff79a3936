"""The hook that profiles steps."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

import jax

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks._base import (
    GLOBAL_STEP_ARGS,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    step_after,
)
from lockstep.estimator._hooks._timer import SecondOrStepTimer
from lockstep.estimator._types import Session
from lockstep.summary.internal import goes_on_without

_log = logging.getLogger("lockstep")
# Where TensorBoard's profile plugin looks below a log directory.
_RUNS = Path("plugins") / "profile"


class ProfilerHook(SessionRunHook):
    """Profiles one step every so many steps or seconds, by JAX' profiler.

    TensorBoard's profile plugin shows `output_dir`, with a run `step_<n>` for each step. Before and after a profiled
    step Python waits for the devices, so that the profile holds this step only.

    Args:
        save_steps: Steps between actions.
        save_secs: Seconds between actions; one of the two must be given.
        output_dir: The directory of profiles; default: the working directory.
        show_dataflow: Must be True.
        show_memory: Must be False. What TensorFlow's own format shows by these two, the plugin always shows.

    Source: tf.estimator.ProfilerHook.

    Raises:
        ArgumentError: If the interval is ambiguous, or an unsupported view is chosen.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        # They choose what TensorFlow's timeline file shows; XLA's profile has both.
        if not show_dataflow or show_memory:
            raise ArgumentError(
                "What a profile shows is chosen in TensorBoard: received "
                f"show_dataflow={show_dataflow!r}, show_memory={show_memory!r}. Leave both out."
            )
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._output_dir = Path(output_dir)
        self._trace: Path | None = None

    def begin(self) -> None:
        """Resets the timer."""
        self._timer.reset()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Starts a profile, if one is due."""
        coming = step_after(run_context)
        if self._timer.last_triggered_step() is not None and self._timer.should_trigger_for_step(coming):
            self._start()
            # A full disk costs the profile, not the training: it is tried again at the next interval.
            if self._trace is None:
                self._timer.update_last_triggered_step(coming)
        return GLOBAL_STEP_ARGS

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Ends the profile in progress."""
        step = int(run_values.results)
        if self._trace is not None:
            self._timer.update_last_triggered_step(step)
            _wait_for_devices()
            with goes_on_without(self._output_dir):
                self._save(step, self._stop())
        elif self._timer.last_triggered_step() is None:
            # Intervals start at the first step, which compiles and is not profiled.
            self._timer.update_last_triggered_step(step - run_context.steps)

    def end(self, session: Session) -> None:
        """Removes a profile whose step did not run."""
        if self._trace is not None:
            _wait_for_devices()
            with goes_on_without(self._output_dir):
                shutil.rmtree(self._stop())

    def next_step(self, step: int) -> int:
        """Returns the step before the one that is profiled, so that this one runs by itself; or that one."""
        due = self._timer.next_trigger(step)
        # `before_run` starts the profile, so the run before must end just there.
        return due - 1 if due > step + 1 else due

    def _start(self) -> None:
        """Starts a profile; leaves `_trace` None if that fails."""
        _wait_for_devices()
        with goes_on_without(self._output_dir):
            self._output_dir.mkdir(parents=True, exist_ok=True)
            trace = Path(tempfile.mkdtemp(prefix=".profile-", dir=self._output_dir))
            jax.profiler.start_trace(trace)
            self._trace = trace

    def _stop(self) -> Path:
        """Ends the profile; returns the directory that has it."""
        trace, self._trace = self._trace, None
        jax.profiler.stop_trace()
        return trace or self._output_dir

    def _save(self, step: int, trace: Path) -> None:
        """Moves a profile to where TensorBoard's plugin looks for a run `step_<n>`."""
        target = self._output_dir / _RUNS / f"step_{step}"
        _log.info("Saving timeline for %d into '%s'.", step, target)
        target.mkdir(parents=True, exist_ok=True)
        for file in (trace / _RUNS).glob("*/*"):
            # JAX names files after the host alone, which tasks on one machine share.
            task = f"task{jax.process_index()}." if jax.process_count() > 1 else ""
            file.replace(target / f"{task}{file.name}")
        shutil.rmtree(trace)


def _wait_for_devices() -> None:
    # Steps are dispatched ahead of the devices: without this, those before would be in the profile, too.
    for array in jax.live_arrays():
        if not array.is_deleted():
            array.block_until_ready()
