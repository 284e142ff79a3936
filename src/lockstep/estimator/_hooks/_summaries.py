"""Hooks that write event files for TensorBoard: summaries, and steps per second."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import Any

import jax
from jax.core import Tracer

from lockstep import summary as event_files
from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator import summary
from lockstep.estimator._hooks._base import (
    GLOBAL_STEP,
    GLOBAL_STEP_ARGS,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    step_after,
)
from lockstep.estimator._hooks._timer import SecondOrStepTimer
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._types import Session

_log = logging.getLogger("lockstep")
# The session's name for the loss and all summaries of the model_fn.
_ALL = "summaries"


class SummarySaverHook(SessionRunHook):
    """Writes summaries every so many steps or seconds, and after the first step.

    Args:
        save_steps: Steps between actions.
        save_secs: Seconds between actions; one of the two must be given.
        output_dir: The directory of event files, if no writer is given.
        summary_writer: A `lockstep.estimator.summary.FileWriter`; it or `output_dir` must be given.
        scaffold: An object with a `summary_op`; not together with one.
        summary_op: The result of `lockstep.estimator.summary.scalar` and the like, or a list of them; default: all
            summaries of the model_fn.

    Source: tf.estimator.SummarySaverHook.

    Raises:
        ArgumentError: If interval, directory or summaries are ambiguous.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: object | None = None,
        scaffold: object | None = None,
        summary_op: PyTree | None = None,
    ) -> None:
        if scaffold is not None and summary_op is not None:
            raise ArgumentError("Only one of scaffold or summary_op can be provided. Received: both; leave one out.")
        if summary_writer is None and not output_dir:
            raise ArgumentError("output_dir or summary_writer must be provided. Received: neither; give one.")
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._summary_writer: Any = summary_writer
        self._output_dir = output_dir
        self._ops = _check_ops(getattr(scaffold, "summary_op", None) if summary_op is None else summary_op)
        self._requested = False
        self._is_first = True

    def begin(self) -> None:
        """Opens the writer."""
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = summary.FileWriterCache.get(self._output_dir)
        self._is_first = True

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Requests the summaries, if they will be written."""
        # TensorFlow writes summaries of the first step always.
        self._requested = self._is_first or self._timer.should_trigger_for_step(step_after(run_context))
        if not self._requested:
            return GLOBAL_STEP_ARGS
        # Values known when the model_fn was traced, such as text, are in the ops already.
        wanted = (
            self._ops
            if isinstance(self._ops, str)
            else [leaf for op in self._ops for leaf in jax.tree.leaves(op.value) if isinstance(leaf, Tracer)]
        )
        return SessionRunArgs({_ALL: wanted})

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the summaries, if they are due."""
        # The step that these are of has been counted.
        step = int(run_context.session.run(GLOBAL_STEP))
        if self._is_first:
            self._is_first = False
            # TensorBoard drops events of an earlier run beyond this step: a restart repeats them.
            self._summary_writer.add_session_log(event_files.SessionLog(status=event_files.SessionLog.START), step)
        if self._requested:
            self._timer.update_last_triggered_step(step)
            # One message for all of them, as an event of a step holds in TensorFlow.
            merged = event_files.Summary()
            for op in _compute_values(self._ops, run_values.results[_ALL]):
                merged.MergeFrom(summary.as_summary(op))
            self._summary_writer.add_summary(merged, step)

    def end(self, session: Session) -> None:
        """Flushes the event file."""
        self._summary_writer.flush()

    def next_step(self, step: int) -> int:
        """Returns the next step after which summaries are written."""
        return self._timer.next_trigger(step)


def _check_ops(summary_op: object) -> str | list[SummaryOp]:
    # By name they are taken from the session, which adds the loss.
    if summary_op is None or (isinstance(summary_op, str) and summary_op == _ALL):
        return _ALL
    ops: list[Any] = list(summary_op) if isinstance(summary_op, (list, tuple)) else [summary_op]
    if not all(isinstance(op, SummaryOp) for op in ops):
        raise ArgumentError(
            "summary_op is what lockstep.estimator.summary.scalar and its like, merge or merge_all return: received "
            f"{summary_op!r}. Leave it out to write all summaries of the model_fn."
        )
    return ops


def _compute_values(ops: str | list[SummaryOp], results: PyTree) -> list[SummaryOp]:
    """Returns the summaries with the values that the session fetched in the places of the traced ones."""
    if isinstance(ops, str):
        return [replace(op, value=value) for op, value in results]
    values, computed = iter(results), list[SummaryOp]()
    for op in ops:
        leaves, structure = jax.tree.flatten(op.value)
        known = [next(values) if isinstance(leaf, Tracer) else leaf for leaf in leaves]
        computed.append(replace(op, value=jax.tree.unflatten(structure, known)))
    return computed


_TAG = f"{GLOBAL_STEP}/sec"
# TensorFlow warns at every 20th step that stands still, for ever.
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
        """Opens the writer, and starts counting."""
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
                steps_per_sec = steps / max(seconds, 1e-9)
                if self._summary_writer is not None:
                    value = event_files.Summary.Value(tag=_TAG, simple_value=steps_per_sec)
                    self._summary_writer.add_summary(event_files.Summary(value=[value]), step)
                _log.info("%s: %g", _TAG, steps_per_sec)
        # TensorFlow's warning, for train_ops that were not given the global step.
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

    def _warn(self, step: int) -> None:
        self._warned += 1
        _log.warning(
            "It seems that global step (tf.train.get_global_step) has not been increased. Current value (could be "
            "stable): %s vs previous value: %s. You could increase the global step by passing "
            "tf.train.get_global_step() to Optimizer.apply_gradients or Optimizer.minimize.",
            step,
            self._last_step,
        )
