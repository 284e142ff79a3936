"""Evaluation without an evaluator task: after checkpoints, between two training steps, on all workers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from lockstep._engine.runtime.runtime import Runtime
from lockstep.estimator._evaluation.checkpoints import Evaluations
from lockstep.estimator._hooks import CheckpointSaverListener, SecondOrStepTimer
from lockstep.estimator._types import Session

_log = logging.getLogger("lockstep")


class EvaluationListener(CheckpointSaverListener):
    """Evaluates checkpoints when they are saved: not the first one, at most one in `throttle_secs`, always the last.

    Args:
        evaluations: Evaluates.
        runtime: The workers.
        throttle_secs: Seconds between the starts of evaluations.
        has_evaluator: Tells the chief whether an evaluator has come meanwhile; the job leaves the rest to it.
    """

    # On every worker, because all of them evaluate.
    is_for_all_tasks = True
    # It waits for the file itself, when it needs it.
    flushes = True

    def __init__(
        self, evaluations: Evaluations, runtime: Runtime, throttle_secs: float, has_evaluator: Callable[[], bool]
    ) -> None:
        self._evaluations = evaluations
        self._runtime = runtime
        self._throttle = throttle_secs
        self._timer = SecondOrStepTimer(every_secs=throttle_secs) if throttle_secs else None
        self._has_evaluator = has_evaluator
        self._is_first = True
        self._step: int | None = None
        self.is_left_to_evaluator = False

    def begin(self) -> None:
        """Starts anew."""
        self._is_first, self._step = True, None

    def after_save(self, session: Session, global_step_value: int) -> None:
        """Evaluates, if it is time to."""
        # The first save is before any step, and TensorFlow's listener skips it too.
        if self._is_first:
            self._is_first = False
            return
        if self._agree(self._is_due(global_step_value)):
            self._evaluate(session, global_step_value)
        elif session.is_chief and not self.is_left_to_evaluator:
            _log.info("Skip the current checkpoint eval due to throttle secs (%s secs).", self._throttle)

    def end(self, session: Session, global_step_value: int) -> None:
        """Evaluates the last checkpoint, unless that has been done."""
        if self._agree(self._step != global_step_value):
            self._evaluate(session, global_step_value)
        if not self.is_left_to_evaluator:
            self._evaluations.finish()

    def _is_due(self, step: int) -> bool:
        return self._timer is None or self._timer.should_trigger_for_step(step)

    def _agree(self, is_due: bool) -> bool:
        """Broadcasts the chief's decision, by its clock and its view of an evaluator task."""
        if not self.is_left_to_evaluator:
            mine = [is_due, self._has_evaluator()]
            is_due, self.is_left_to_evaluator = self._runtime.all_gather_object(
                "whether to evaluate this checkpoint", mine
            )[0]
        return is_due and not self.is_left_to_evaluator

    def _evaluate(self, session: Session, step: int) -> None:
        # Checkpoints are written in the background; the evaluation reads the file.
        session.flush()
        if self._timer is not None:
            self._timer.update_last_triggered_step(step)
        self._step = step
        self._evaluations.run(None)
