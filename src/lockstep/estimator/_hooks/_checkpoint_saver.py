"""The hook that saves checkpoints, and its listeners."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
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


class CheckpointSaverListener:
    """Base class of listeners, called before and after each checkpoint.

    Source: tf.estimator.CheckpointSaverListener.
    """

    def begin(self) -> None:
        """Runs once, before there is a session."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Runs before a checkpoint is written.

        Args:
            session: The session.
            global_step_value: The step.
        """

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """Runs after a checkpoint is written.

        Args:
            session: The session.
            global_step_value: The step.

        Returns:
            True to end training; of no effect after the first and the last checkpoint.
        """

    def end(self, session: Session, global_step_value: int) -> None:
        """Runs at the end, after the last checkpoint.

        Args:
            session: The session.
            global_step_value: The step.
        """


class CheckpointSaverHook(SessionRunHook):
    """Saves checkpoints: at the start, every so many steps or seconds, and at the end if there are new steps.

    In a job of several workers all of them need one. With seconds, the chief's clock counts.

    Args:
        checkpoint_dir: The directory of checkpoints.
        save_secs: Seconds between checkpoints.
        save_steps: Steps between checkpoints; one of the two must be given.
        saver: An object whose `save(session, path, global_step=step)` writes them; default: the session.
        checkpoint_basename: Prefix of file names; the step follows.
        scaffold: An object whose `saver`, if it is not None, writes them; not together with `saver`.
        listeners: Listeners, called before and after each checkpoint.
        save_graph_def: Ignored: there is no graph.

    Attributes:
        listeners: The listeners; more may be added until training begins.

    Source: tf.estimator.CheckpointSaverHook.

    Raises:
        ArgumentError: If not exactly one interval is given, or two savers.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: object | None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: object | None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        _log.info("Create CheckpointSaverHook.")
        if saver is not None and scaffold is not None:
            raise ArgumentError("You cannot provide both saver and scaffold. Received: both; leave one out.")
        chosen: Any = getattr(scaffold, "saver", None) if saver is None else saver
        if chosen is not None and not callable(getattr(chosen, "save", None)):
            raise ArgumentError(
                f"A saver has a method save(session, path, global_step=step): received {chosen!r}. Leave it out, and "
                "the Estimator saves."
            )
        self._saver = chosen
        self._directory = os.fspath(checkpoint_dir)
        self._basename = checkpoint_basename
        self._save_path = os.path.join(self._directory, checkpoint_basename)
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._by_clock = save_secs is not None
        self._chief_signal = ChiefSignal("save")
        self.listeners: list[CheckpointSaverListener] = list(listeners or [])

    def begin(self) -> None:
        """Calls the listeners' `begin`."""
        for listener in self.listeners:
            listener.begin()

    def after_create_session(self, session: Session, coord: object) -> None:
        """Saves the first values."""
        step = int(session.run(GLOBAL_STEP))
        # TensorFlow saves at creation too, also after a restore: a job that dies at once has a step to start from, and
        # seconds count from here.
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks for the global step."""
        return GLOBAL_STEP_ARGS

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Saves, if it is time to."""
        step, session = int(run_values.results), run_context.session

        def is_due() -> bool:
            return self._timer.should_trigger_for_step(step)

        # Steps are the same on all workers; clocks are not, so by seconds the chief decides.
        if self._chief_signal.should_act(session, is_due) if self._by_clock else is_due():
            self._timer.update_last_triggered_step(step)
            # TensorFlow stops only for listeners that are called after a step, not for the first and the last
            # checkpoint.
            if self._save(session, step):
                run_context.request_stop()

    def end(self, session: Session) -> None:
        """Saves steps since the last checkpoint, and calls the listeners' `end`."""
        # Not called when training ends by an exception: TensorFlow makes no last checkpoint then, of weights that may
        # be the reason.
        step = int(session.run(GLOBAL_STEP))
        if step != self._timer.last_triggered_step():
            self._save(session, step)
        for listener in self.listeners:
            listener.end(session, step)

    def on_preempted(self, session: Session) -> None:
        """Saves steps since the last checkpoint, on preemption."""
        step = int(session.run(GLOBAL_STEP))
        if step != self._timer.last_triggered_step():
            self._timer.update_last_triggered_step(step)
            self._save(session, step)

    def next_step(self, step: int) -> int:
        """Returns the next step that may be saved."""
        due = self._timer.next_trigger(step)
        return self._chief_signal.next_step(step, due) if self._by_clock else due

    def _save(self, session: Session, step: int) -> bool:
        """Saves; returns whether a listener wants training to end."""
        _log.info("Calling checkpoint listeners before saving checkpoint %d...", step)
        for listener in self.listeners:
            listener.before_save(session, step)
        _log.info("Saving checkpoints for %d into %s.", step, self._save_path)
        if self._saver is None:
            # All workers have this hook, so the session can save collectively, with sharded state and all input
            # positions.
            getattr(session, "save_together", session.save)(self._directory, self._basename)
        else:
            self._saver.save(session, self._save_path, global_step=step)
        if session.is_chief:
            log = event_files.SessionLog(status=event_files.SessionLog.CHECKPOINT, checkpoint_path=self._save_path)
            summary.FileWriterCache.get(self._directory).add_session_log(log, step)
        _log.info("Calling checkpoint listeners after saving checkpoint %d...", step)
        # All of them are called, also behind one that stops.
        stopping = [listener for listener in self.listeners if listener.after_save(session, step)]
        for listener in stopping:
            _log.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
        return bool(stopping)


class ChiefSignal:
    """A decision that the chief makes by its own clock, and on which all workers act after the same step."""

    def __init__(self, signal: str) -> None:
        self._signal = signal
        self._is_broadcast = False
        self._waits = True

    def should_act(self, session: Session, is_due: Callable[[], bool]) -> bool:
        """Returns whether to act after this step; in a single process, as soon as it is due."""
        if session.is_chief:
            # Not asked again while its last signal is on the way: that would make two checkpoints of one.
            if not self._is_broadcast and is_due():
                session.broadcast(self._signal)
                self._is_broadcast = True
            self._waits = self._is_broadcast
        if not session.has_received(self._signal):
            return False
        self._is_broadcast = False
        self._waits = not session.is_chief
        return True

    def next_step(self, step: int, on_chief: int) -> int:
        """Returns the step after which `should_act` must be called next; the chief decides next at `on_chief`."""
        # A signal arrives with some step, so workers that wait for one must check after each, in runs of one step.
        return step if self._waits else on_chief
