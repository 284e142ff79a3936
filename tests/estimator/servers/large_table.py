"""Trains an Estimator whose table no task holds, on each task of a job; a module that runs."""

from __future__ import annotations

import itertools
import json
import resource
import sys
from pathlib import Path
from typing import Any

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np

from lockstep import estimator
from lockstep.estimator import train

# 3.2 GB of float32, and as much of the optimizer's.
ROWS, COLUMNS = 50_000_000, 16


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A model of a large table."""
    looked_up = keras.layers.Embedding(ROWS, COLUMNS)(features)
    predicted = keras.layers.Dense(1)(looked_up.mean(axis=1))
    if mode == "infer":
        return estimator.EstimatorSpec(mode, predictions=predicted[:, 0])
    loss = estimator.losses.mean_squared_error(labels, predicted)
    train_op = train.AdagradOptimizer(0.5).minimize(loss, train.get_global_step())
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn() -> ls.data.Dataset:
    """Returns ids of all of the table, some of them again and again."""
    random = np.random.default_rng(0)
    ids = random.integers(0, ROWS, (64, 4))
    ids[:, 0] = ROWS - 1
    return ls.data.Dataset.from_tensor_slices((ids, np.ones((64, 1), np.float32))).batch(16).repeat(10)


class Losses(estimator.SessionRunHook):
    """Collects the losses of steps."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        return estimator.SessionRunArgs("loss")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.losses.append(float(run_values.results))


def main() -> None:
    """Trains in two calls, with an evaluator; writes losses, metrics and the memory that the task has taken."""
    folder = Path(sys.argv[1])
    task = ls.cluster_resolver.TFConfigClusterResolver()
    config = estimator.RunConfig(str(folder / "model"), save_checkpoints_steps=10)
    hook = Losses()
    made = estimator.Estimator(model_fn, config=config)
    hooks = [hook] if config.is_chief else []
    if task.task_type in ("chief", "worker"):
        made.train(input_fn, hooks, max_steps=20)
    spec = estimator.TrainSpec(input_fn, max_steps=40, hooks=hooks)
    metrics, _ = estimator.train_and_evaluate(
        made, spec, estimator.EvalSpec(input_fn, steps=4, start_delay_secs=0, throttle_secs=0)
    )
    found = {"losses": hook.losses, "metrics": metrics}
    if config.is_chief:
        found["own metrics"] = made.evaluate(input_fn, steps=4)
        found["predicted"] = [float(p) for p in itertools.islice(made.predict(input_fn), 4)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)
    (folder / f"{task.task_type} {task.task_id}").write_text(json.dumps({"peak": peak, **found}))


if __name__ == "__main__":
    main()
