"""Runs a model_fn for some steps or batches, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.replicas import Replicas
from lockstep.estimator._model_fn.function import Data, ModelFunction, Selection
from lockstep.estimator._model_fn.steps import evaluate_step, train_step
from lockstep.estimator._model_fn.variables import Variables

# Compiling takes longer than running here.
_QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_NOTHING = Selection(frozenset(), lambda spec: [])


class Trained:
    """What came of training.

    Attributes:
        first: The value of each variable before the first step, by key.
        values: The same, after the last step.
        losses: Of each step.
        named: What `scope.record` was given, of each step.
    """

    def __init__(self, first: dict[str, Any]) -> None:
        self.first = first
        self.values = first
        self.losses: list[float] = []
        self.named: list[dict[str, Any]] = []

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def spec(train_op: Any = None, loss: Any = 0.0, eval_metric_ops: Any = None) -> SimpleNamespace:
    """What a model_fn returns."""
    return SimpleNamespace(train_op=train_op, loss=jax.numpy.asarray(loss), eval_metric_ops=eval_metric_ops)


def train(model: Callable[[Any], Any], batches: Iterable[Any], replicas: int = 1) -> Trained:
    """Trains with a model_fn of one argument, the features."""
    function = _function(model, "train", replicas)
    step = train_step(function, _replicas(replicas), _NOTHING).batch_step
    data = [Data(batch) for batch in batches]
    jax.eval_shape(step, {}, data[0])
    done = Trained(function.variables.initial_values())
    compiled = jax.jit(step, compiler_options=_QUICKLY)
    for batch in data:
        outputs, done.values = compiled(done.values, batch)
        done.losses.append(float(outputs["loss"]))
        done.named.append({name: np.asarray(value) for name, value in outputs["values"].items()})
    done.values = {key: np.asarray(value) for key, value in done.values.items()}
    return done


class Evaluation:
    """Evaluates with a model_fn of one argument, any number of times; it is compiled once for each shape of data."""

    def __init__(self, model: Callable[[Any], Any], replicas: int = 1) -> None:
        self._function = _function(model, "eval", replicas)
        self._step = evaluate_step(self._function, _replicas(replicas), _NOTHING).batch_step
        self._compiled = jax.jit(self._step, compiler_options=_QUICKLY)
        self._is_known = False

    def __call__(self, batches: Iterable[Any]) -> dict[str, Any]:
        """Returns the metrics after the last batch."""
        data = [Data(batch) for batch in batches]
        if not self._is_known:
            jax.eval_shape(self._step, {}, data[0])
            self._is_known = True
        state: Any = self._function.variables.initial_values()
        metrics: dict[str, Any] = {}
        for batch in data:
            outputs, state = self._compiled(state, batch)
            metrics = outputs["metrics"]
        return {name: np.asarray(value) for name, value in metrics.items()}


def evaluate(model: Callable[[Any], Any], batches: Iterable[Any], replicas: int = 1) -> dict[str, Any]:
    """Evaluates once with a model_fn of one argument, and returns the metrics after the last batch."""
    return Evaluation(model, replicas)(batches)


def measure(metric: Callable[[Any], Any], batches: Iterable[Any], replicas: int = 1) -> Any:
    """Returns what a metric comes to over batches."""
    return evaluate(lambda batch: spec(eval_metric_ops={"it": metric(batch)}), batches, replicas)["it"]


def _function(model: Callable[[Any], Any], mode: str, replicas: int) -> ModelFunction:
    return ModelFunction(lambda features, labels, mode: model(features), mode, Variables(0), replicas, frozenset())


def _replicas(count: int) -> Replicas:
    return Replicas(Runtime(), jax.devices()[:count])
