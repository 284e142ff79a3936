"""Hooks for a session's values: logged, kept at the end, or fed (which is refused)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lockstep._types import PyTree
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._hooks._base import (
    GLOBAL_STEP,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from lockstep.estimator._hooks._timer import NeverTriggerTimer, SecondOrStepTimer, Timer
from lockstep.estimator._types import Session

_log = logging.getLogger("lockstep")


class LoggingTensorHook(SessionRunHook):
    """Logs values every so many steps or seconds, or at the end, such as `loss = 0.40, step = 101 (0.088 sec)`.

    The first step is always logged; the time is that since the previous line.

    Args:
        tensors: A dict of tags to names or values, logged in the order of the tags; or a list of names and values,
            logged in its order. The tag of a value without a name is its place in the list, as `tensors[0]`.
        every_n_iter: Steps between actions, counted from the first step of this run.
        every_n_secs: Seconds between actions.
        at_end: Whether to log the last step's values at the end.
        formatter: Formats a dict of numpy values by tag. Default: as above.

    Source: tf.estimator.LoggingTensorHook.

    Raises:
        ArgumentError: If the interval or the values are ambiguous.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        self._timer = _timer(every_n_iter, every_n_secs, at_end)
        self._tensors = dict(tensors) if isinstance(tensors, Mapping) else _by_name(tensors)
        # TensorFlow's order: a dict's tags sorted, a list's as given.
        self._tags = sorted(self._tensors) if isinstance(tensors, Mapping) else list(self._tensors)
        self._formatter = formatter
        self._at_end = at_end
        self._iterations = 0
        self._triggered = False
        self._first_step: int | None = None

    def begin(self) -> None:
        """Resets the timer."""
        self._timer.reset()
        self._iterations = 0
        self._first_step = None

    def after_create_session(self, session: Session, coord: object) -> None:
        """Records the first step of this run."""
        self._first_step = int(session.run(GLOBAL_STEP)) - self._iterations

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Requests the values, if they will be logged."""
        if self._first_step is not None:
            # TensorFlow counts its own calls; here runs in which the hook is not due are made without calling it.
            done = int(run_context.session.run(GLOBAL_STEP)) - self._first_step
            self._iterations = max(self._iterations, done)
        self._triggered = self._timer.should_trigger_for_step(self._iterations + run_context.steps - 1)
        return SessionRunArgs(self._tensors) if self._triggered else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Logs the values, if they are due."""
        self._iterations += run_context.steps
        if self._triggered:
            self._write(run_values.results)

    def end(self, session: Session) -> None:
        """Logs the values, if `at_end` is set."""
        if self._at_end and self._iterations:
            self._write(session.run(self._tensors))

    def next_step(self, step: int) -> int | None:
        """Returns the next step that is logged."""
        done = self._iterations if self._first_step is None else max(self._iterations, step - self._first_step)
        due = self._timer.next_trigger(done - 1)
        return None if due is None else step + 1 + due - done

    def _write(self, values: dict[str, Any]) -> None:
        # The step of this run, from 0, not the global one: TensorFlow's intervals begin with the run.
        seconds, _ = self._timer.update_last_triggered_step(self._iterations - 1)
        with np.printoptions(suppress=True):
            if self._formatter is not None:
                _log.info("%s", self._formatter(values))
                return
            line = ", ".join(f"{tag} = {values[tag]!s}" for tag in self._tags)
        # The first line has no time: there is no line before it to count from.
        _log.info("%s", line) if seconds is None else _log.info("%s (%.3f sec)", line, seconds)


def _timer(every_n_iter: int | None, every_n_secs: float | None, at_end: bool) -> Timer:
    # TensorFlow's rule: at_end alone, or exactly one interval.
    if at_end and every_n_iter is None and every_n_secs is None:
        return NeverTriggerTimer()
    if (every_n_iter is None) == (every_n_secs is None):
        raise ArgumentError(
            "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided. Received: "
            f"every_n_iter={every_n_iter!r}, every_n_secs={every_n_secs!r}, at_end={at_end!r}."
        )
    if every_n_iter is not None and every_n_iter <= 0:
        raise ArgumentError(f"invalid every_n_iter={every_n_iter}. It is a number of steps, at least 1.")
    return SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)


def _by_name(tensors: Iterable[Any]) -> dict[str, Any]:
    if isinstance(tensors, str):
        raise ArgumentError(f"tensors is a list of names or a dict: received {tensors!r}. Write [{tensors!r}].")
    return {_tag_of(tensor, place): tensor for place, tensor in enumerate(tensors)}


def _tag_of(tensor: Any, place: int) -> str:
    name = tensor if isinstance(tensor, str) else getattr(tensor, "name", None)
    return name if isinstance(name, str) else f"tensors[{place}]"


class FinalOpsHook(SessionRunHook):
    """Keeps values at the end of a session.

    Args:
        final_ops: Any structure of what a session's `run` takes.
        final_ops_feed_dict: Must be None.

    Source: tf.estimator.FinalOpsHook.

    Raises:
        UnsupportedError: If something is to be fed.
    """

    def __init__(self, final_ops: PyTree, final_ops_feed_dict: Mapping[str, Any] | None = None) -> None:
        if final_ops_feed_dict is not None:
            raise UnsupportedError(
                "Nothing can be fed from outside: FinalOpsHook received a final_ops_feed_dict. Give the value together "
                "with the features, in the input_fn."
            )
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """Returns the values, in the structure of `final_ops`; None before the end."""
        return self._values

    def end(self, session: Session) -> None:
        """Takes the values."""
        if self._final_ops is not None:
            self._values = session.run(self._final_ops)

    def next_step(self, step: int) -> None:
        """Returns None: it reads values at the end only."""


class FeedFnHook(SessionRunHook):
    """Cannot be made: nothing can be fed into a step from outside.

    Source: tf.estimator.FeedFnHook.

    Raises:
        UnsupportedError: Always.
    """

    def __init__(self, feed_fn: object) -> None:
        raise UnsupportedError(
            f"Nothing can be fed into a step from outside: received FeedFnHook({feed_fn!r}). Yield the values from the "
            "input_fn, for example by lockstep.data.Dataset.from_generator."
        )
