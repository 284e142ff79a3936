"""Small data, and what training on it gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.data import Dataset
from lockstep.estimator import RunConfig
from lockstep.estimator._hooks import SessionRunArgs, SessionRunHook


def text(*values: Any) -> np.ndarray:
    """An object array of text."""
    return np.array(values, object)


COUNT = 12
FEATURES: dict[str, Any] = {
    "age": ((np.arange(COUNT) % 5 - 2) / 2).astype(np.float32)[:, None],
    "w": text(*(["a", "b", "c", "", "zz"][i % 5] for i in range(COUNT)))[:, None],
    "wt": (1 + np.arange(COUNT) % 3).astype(np.float32),
}
LABELS = np.arange(COUNT) % 2


class _Losses(SessionRunHook):
    def __init__(self) -> None:
        self.found: list[float] = []

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs("loss")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.found.append(float(run_values.results))


def batches(labels: Any = LABELS, times: int = 1, size: int = 4, **features: Any) -> Callable[[], Dataset]:
    """An input_fn."""
    chosen = features or FEATURES
    return lambda: Dataset.from_tensor_slices((chosen, labels)).batch(size).repeat(times)


def losses(estimator: Any, input_fn: Callable[[], Any]) -> list[float]:
    """Trains; returns the loss of each step."""
    hook = _Losses()
    estimator.train(input_fn, hooks=[hook])
    return hook.found


def config(path: Path) -> RunConfig:
    """A configuration with a seed, that keeps its checkpoints in `path`."""
    return RunConfig(model_dir=str(path), tf_random_seed=1)
