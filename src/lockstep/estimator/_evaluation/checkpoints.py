"""Evaluations of train_and_evaluate: one checkpoint after another, each with its exports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep._types import JSON
from lockstep.estimator._estimator import Estimator, core_of
from lockstep.estimator._evaluation.evaluate import evaluate
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.estimator._types import Strategy

if TYPE_CHECKING:
    from lockstep.estimator._specs import EvalSpec

# (metrics, results of exporters), as train_and_evaluate returns them.
Result = tuple[dict[str, Any] | None, list[Any] | None]


class Evaluations:
    """A series of evaluations of checkpoints, with exports.

    Args:
        estimator: The Estimator.
        spec: An `EvalSpec`.
        max_steps: The training's `max_steps`, or `None`.
        strategy: The strategy of evaluations, or `None`.
        exports: Whether this process exports.
    """

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


def as_json(result: Result) -> JSON:
    """Encodes a result for another process."""
    metrics, exports = result
    if metrics is None:
        return None
    encoded = {name: [v.dtype.name, v.tolist()] if isinstance(v, np.ndarray) else v for name, v in metrics.items()}
    return [encoded, [e if e is None else _text(e) for e in exports or ()]]


def from_json(document: JSON) -> Result:
    """Decodes the result of `as_json`."""
    if document is None:
        return None, None
    encoded, exports = document
    return {n: np.asarray(v[1], v[0]) if isinstance(v, list) else v for n, v in encoded.items()}, [
        e if e is None else os.fsencode(e) for e in exports
    ]


def _text(exported: str | bytes) -> str:
    return os.fsdecode(exported)
