"""Evaluations of train_and_evaluate: one checkpoint after another, each with its exports, amid training or not."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep._engine.runtime.runtime import Runtime
from lockstep._types import JSON
from lockstep.estimator._estimator import Estimator, core_of
from lockstep.estimator._evaluation.evaluate import evaluate
from lockstep.estimator._export.exporters import FinalExporter
from lockstep.estimator._hooks import CheckpointSaverListener, SecondOrStepTimer
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.estimator._types import Session, Strategy

if TYPE_CHECKING:
    from lockstep.estimator._train_and_evaluate import EvalSpec

_log = logging.getLogger("lockstep")
# (metrics, results of exporters), as train_and_evaluate returns them.
Result = tuple[dict[str, Any] | None, list[Any] | None]


class Evaluations:
    """A series of evaluations of checkpoints, on the workers of `strategy`; the process that `exports` exports them."""

    def __init__(
        self, estimator: Estimator, spec: EvalSpec, max_steps: int | None, strategy: Strategy | None, exports: bool
    ) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._strategy = strategy
        self._exports = exports
        self._path: str | None = None
        self.result: Result = (None, None)
        self._was_final = False

    @property
    def step(self) -> int | None:
        """Returns the global step of the last evaluation."""
        metrics = self.result[0]
        return None if metrics is None else int(metrics[GLOBAL_STEP])

    def run(self, path: str | None) -> None:
        """Evaluates a checkpoint (on tasks other than the chief, together with it), and exports."""
        spec = self._spec
        directory = self._estimator.eval_dir(spec.name)
        metrics = evaluate(
            core_of(self._estimator), self._strategy, spec.input_fn, spec.steps, spec.hooks, path, directory
        )
        self._path = path or (self._estimator.latest_checkpoint() if self._exports else None)
        self.result = (metrics, [None] * len(spec.exporters))
        # TensorFlow's rule: without max_steps no export is the final one while training goes on.
        self._was_final = self._max_steps is not None and int(metrics[GLOBAL_STEP]) >= self._max_steps
        self._export(self._spec.exporters, self._was_final)

    def finish(self) -> None:
        """Lets a `FinalExporter` export the last evaluation, where none was the final one."""
        # TensorFlow's never exports without max_steps. Other exporters have had their call for this evaluation.
        if self.step is not None and not self._was_final:
            self._was_final = True
            self._export([e for e in self._spec.exporters if isinstance(e, FinalExporter)], True)

    def _export(self, exporters: Sequence[Any], is_final: bool) -> None:
        metrics, results = self.result
        assert results is not None
        for number, exporter in enumerate(self._spec.exporters if self._exports else ()):
            if exporter in exporters:
                results[number] = exporter.export(
                    estimator=self._estimator,
                    export_path=os.path.join(self._estimator.model_dir, "export", exporter.name),
                    checkpoint_path=self._path,
                    eval_result=metrics,
                    is_the_final_export=is_final,
                )


def as_json(result: Result) -> JSON:
    """Encodes a result for another process."""
    metrics, exports = result
    if metrics is None:
        return None
    # Metrics may be arrays, whose dtypes JSON does not have.
    encoded = {name: [v.dtype.name, v.tolist()] if isinstance(v, np.ndarray) else v for name, v in metrics.items()}
    return [encoded, [e if e is None else os.fsdecode(e) for e in exports or ()]]


def from_json(document: JSON) -> Result:
    """Decodes the result of `as_json`."""
    if document is None:
        return None, None
    encoded, exports = document
    return {n: np.asarray(v[1], v[0]) if isinstance(v, list) else v for n, v in encoded.items()}, [
        e if e is None else os.fsencode(e) for e in exports
    ]


class EvaluationListener(CheckpointSaverListener):
    """Evaluates checkpoints when they are saved: not the first one, at most one in `throttle_secs`, always the last.

    `has_evaluator` tells the chief whether an evaluator task has come meanwhile; the job leaves the rest to it.

    Source: _NewCheckpointListenerForEvaluate of tensorflow_estimator/python/estimator/training.py.
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
        """Resets what is known of an earlier training."""
        self._is_first, self._step = True, None

    def after_save(self, session: Session, global_step_value: int) -> None:
        """Evaluates, if it is time to."""
        # The first save is before any step, and TensorFlow's listener skips it too.
        if self._is_first:
            self._is_first = False
            return
        if self._agree(self._timer is None or self._timer.should_trigger_for_step(global_step_value)):
            self._evaluate(session, global_step_value)
        elif session.is_chief and not self.is_left_to_evaluator:
            _log.info("Skip the current checkpoint eval due to throttle secs (%s secs).", self._throttle)

    def end(self, session: Session, global_step_value: int) -> None:
        """Evaluates the last checkpoint, unless that has been done; the throttle does not count, as in TensorFlow."""
        if self._agree(self._step != global_step_value):
            self._evaluate(session, global_step_value)
        if not self.is_left_to_evaluator:
            self._evaluations.finish()

    def _agree(self, is_due: bool) -> bool:
        """Broadcasts the chief's decision, by its clock and its view of an evaluator task."""
        if not self.is_left_to_evaluator:
            # One message for both: each agreement is a round trip between two steps.
            mine = [is_due, self._has_evaluator()]
            is_due, self.is_left_to_evaluator = self._runtime.all_gather_object(
                "whether to evaluate this checkpoint", mine
            )[0]
        return is_due and not self.is_left_to_evaluator

    def _evaluate(self, session: Session, step: int) -> None:
        # Checkpoints are written in the background; the evaluation reads the file.
        session.flush()
        # The throttle counts from the start of the evaluation before, as in TensorFlow.
        if self._timer is not None:
            self._timer.update_last_triggered_step(step)
        self._step = step
        self._evaluations.run(None)
