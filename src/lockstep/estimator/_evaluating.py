"""Evaluations of train_and_evaluate: of one checkpoint after another, each with its exports."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from lockstep._model_fn.variables import GLOBAL_STEP
from lockstep.estimator._estimator import Estimator, engine_of
from lockstep.estimator._evaluation import evaluate

# (metrics, what each exporter returned): what train_and_evaluate returns.
Result = tuple[dict[str, Any] | None, list[Any] | None]


class Evaluations:
    """Evaluates checkpoints, and exports.

    Args:
        estimator: Whose.
        spec: An `EvalSpec`.
        max_steps: Of the training, or `None`.
        strategy: With which to evaluate, or `None`.
        exports: Whether this task exports.
    """

    def __init__(self, estimator: Estimator, spec: Any, max_steps: int | None, strategy: Any, exports: bool) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._strategy = strategy
        self._exports = exports
        self._path: str | None = None
        self.result: Result = (None, None)

    @property
    def step(self) -> int | None:
        """The global step of the last evaluation."""
        metrics = self.result[0]
        return None if metrics is None else int(metrics[GLOBAL_STEP])

    def run(self, path: str | None) -> None:
        """Evaluates a checkpoint (on tasks other than the chief, together with it), and exports."""
        spec = self._spec
        directory = self._estimator.eval_dir(spec.name)
        metrics = evaluate(
            engine_of(self._estimator), self._strategy, spec.input_fn, spec.steps, spec.hooks, path, directory
        )
        self._path = path or (self._estimator.latest_checkpoint() if self._exports else None)
        self.result = (metrics, [None] * len(spec.exporters))
        self._export(is_final=self._max_steps is not None and int(metrics[GLOBAL_STEP]) >= self._max_steps)

    def finish(self) -> None:
        """Exports the last evaluation as the final one, where it has not been."""
        if self.step is not None:
            self._export(is_final=True)

    def _export(self, is_final: bool) -> None:
        metrics, results = self.result
        assert results is not None
        for number, exporter in enumerate(self._spec.exporters if self._exports else ()):
            if results[number] is None:
                results[number] = exporter.export(
                    estimator=self._estimator,
                    export_path=os.path.join(self._estimator.model_dir, "export", exporter.name),
                    checkpoint_path=self._path,
                    eval_result=metrics,
                    is_the_final_export=is_final,
                )


def as_json(result: Result) -> Any:
    """Returns a result for another task."""
    metrics, exports = result
    if metrics is None:
        return None
    encoded = {name: [v.dtype.name, v.tolist()] if isinstance(v, np.ndarray) else v for name, v in metrics.items()}
    return [encoded, [e if e is None else _text(e) for e in exports or ()]]


def from_json(found: Any) -> Result:
    """Returns what `as_json` was given."""
    if found is None:
        return None, None
    encoded, exports = found
    return {n: np.asarray(v[1], v[0]) if isinstance(v, list) else v for n, v in encoded.items()}, [
        e if e is None else os.fsencode(e) for e in exports
    ]


def _text(exported: Any) -> str:
    return os.fsdecode(exported)
