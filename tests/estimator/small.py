"""A small Estimator for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np

from lockstep import estimator
from lockstep.data import Dataset
from lockstep.estimator import metrics, train

ROWS = 40
BATCH = 4


def data(rows: int = ROWS) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Features and labels that a line explains."""
    x = np.linspace(-1, 1, rows, dtype=np.float32)[:, None]
    return {"x": x}, 2 * x + 1


def input_fn(rows: int = ROWS, batch: int = BATCH) -> Callable[[], Any]:
    """An input_fn of `rows / batch` batches."""
    return lambda: Dataset.from_tensor_slices(data(rows)).batch(batch)


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> estimator.EstimatorSpec:
    """A line."""
    predicted = keras.layers.Dense(1, name="line")(features["x"])
    if mode == estimator.ModeKeys.PREDICT:
        return estimator.EstimatorSpec(mode, predictions={"y": predicted, "twice": 2 * predicted})
    loss = jnp.mean((predicted - labels) ** 2)
    if mode == estimator.ModeKeys.EVAL:
        found = {"mean": metrics.mean(predicted)}
        return estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=found)
    optimizer = train.GradientDescentOptimizer(params.get("rate", 0.1))
    return estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, train.get_global_step()))


def line(model_dir: Path, config: Any = None, **arguments: Any) -> estimator.Estimator:
    """An Estimator of it."""
    return estimator.Estimator(model_fn, str(model_dir), config, arguments.pop("params", {}), **arguments)


def step_of(trained: estimator.Estimator) -> int:
    """The global step in the latest checkpoint."""
    return int(trained.get_variable_value("global_step"))
