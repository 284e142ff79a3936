"""The hook that writes summaries for TensorBoard."""

from __future__ import annotations

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
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from lockstep.estimator._hooks._pace import step_after
from lockstep.estimator._hooks._timer import SecondOrStepTimer
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._types import Session

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
        self._ops = _ops(getattr(scaffold, "summary_op", None) if summary_op is None else summary_op)
        self._requested = False
        self._is_first = True

    def begin(self) -> None:
        """Opens the writer."""
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = summary.FileWriterCache.get(self._output_dir)
        self._is_first = True

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Requests the summaries, if they will be written."""
        self._requested = self._is_first or self._timer.should_trigger_for_step(step_after(run_context))
        fetches = {GLOBAL_STEP: GLOBAL_STEP, _ALL: _fetches(self._ops)}
        return SessionRunArgs(fetches if self._requested else {GLOBAL_STEP: GLOBAL_STEP})

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the summaries, if they are due."""
        step = int(run_values.results[GLOBAL_STEP])
        if self._is_first:
            self._is_first = False
            # TensorBoard drops events of an earlier run beyond this step: a restart repeats them.
            self._summary_writer.add_session_log(event_files.SessionLog(status=event_files.SessionLog.START), step)
        if self._requested:
            self._timer.update_last_triggered_step(step)
            self._summary_writer.add_summary(_merge(_compute_values(self._ops, run_values.results[_ALL])), step)

    def end(self, session: Session) -> None:
        """Flushes the event file."""
        self._summary_writer.flush()

    def next_step(self, step: int) -> int:
        """Returns the next step after which summaries are written."""
        return self._timer.next_trigger(step)


def _ops(summary_op: object) -> str | list[SummaryOp]:
    if summary_op is None or (isinstance(summary_op, str) and summary_op == _ALL):
        return _ALL
    ops: list[Any] = list(summary_op) if isinstance(summary_op, (list, tuple)) else [summary_op]
    if not all(isinstance(op, SummaryOp) for op in ops):
        raise ArgumentError(
            "summary_op is what lockstep.estimator.summary.scalar and its like, merge or merge_all return: received "
            f"{summary_op!r}. Leave it out to write all summaries of the model_fn."
        )
    return ops


def _merge(ops: list[SummaryOp]) -> Any:
    merged = event_files.Summary()
    for op in ops:
        merged.MergeFrom(summary.as_summary(op))
    return merged


def _fetches(ops: str | list[SummaryOp]) -> Any:
    """Returns the values to fetch; values known when the model_fn is traced are not fetched."""
    return ops if isinstance(ops, str) else [v for op in ops for v in _traced_leaves(op)]


def _compute_values(ops: str | list[SummaryOp], results: PyTree) -> list[SummaryOp]:
    if isinstance(ops, str):
        return [replace(op, value=value) for op, value in results]
    values = iter(results)
    return [_with_values(op, values) for op in ops]


def _with_values(op: SummaryOp, values: PyTree) -> SummaryOp:
    leaves, structure = jax.tree.flatten(op.value)
    known = [next(values) if isinstance(leaf, Tracer) else leaf for leaf in leaves]
    return replace(op, value=jax.tree.unflatten(structure, known))


def _traced_leaves(op: SummaryOp) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(op.value) if isinstance(leaf, Tracer)]
