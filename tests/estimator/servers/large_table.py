"""Trains an Estimator whose table no task holds, on each task of a job; a module that runs."""

from __future__ import annotations

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
    loss = estimator.losses.mean_squared_error(labels, keras.layers.Dense(1)(looked_up.mean(axis=1)))
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
    """Trains without checkpoints, which hold whole tables; writes losses and the memory that the task has taken."""
    folder = Path(sys.argv[1])
    task = ls.cluster_resolver.TFConfigClusterResolver()
    config = estimator.RunConfig(str(folder / "model"), save_checkpoints_steps=None, save_checkpoints_secs=None)
    hook = Losses()
    if task.task_type == "ps":
        strategy: Any = ls.distribute.ParameterServerStrategy()
        strategy._servers.job.serve_until_end()
    else:
        hooks = [hook] if config.is_chief else []
        estimator.Estimator(model_fn, config=config).train(input_fn, hooks, max_steps=40)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)
    (folder / f"{task.task_type} {task.task_id}").write_text(f"{peak} {hook.losses[:1]} {hook.losses[-1:]}")


if __name__ == "__main__":
    main()
