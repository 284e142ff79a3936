"""Several steps in one dispatch: hooks, checkpoints and numbers do not notice."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep import checkpoint, estimator
from lockstep.data import Dataset
from lockstep.estimator import RunConfig, train
from tests.estimator.small import input_fn, line

STEPS = 60


class Each(estimator.SessionRunHook):
    """Looks at every step; or only at some, if it is told which."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []
        self.made: list[int] = []

    def before_run(self, run_context: Any) -> Any:
        self.made.append(run_context.steps)
        return estimator.SessionRunArgs({"step": "global_step", "loss": "loss"})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.seen.append((int(run_values.results["step"]) + 1, float(run_values.results["loss"])))


class Some(Each):
    """Is called after every 20th step."""

    def before_run(self, run_context: Any) -> Any:
        return super().before_run(run_context)

    def next_step(self, step: int) -> int:
        return (step // 20 + 1) * 20


class Now(Some):
    """Is called after every dispatch."""

    def before_run(self, run_context: Any) -> Any:
        return super().before_run(run_context)

    def next_step(self, step: int) -> int:
        return step


def weights(directory: Path) -> Any:
    return checkpoint.load(checkpoint.latest_checkpoint(str(directory)) or "").arrays


def run(directory: Path, *hooks: Any, **config: Any) -> None:
    made = line(directory, RunConfig(tf_random_seed=1, **config))
    made.train(input_fn(4 * STEPS), hooks=list(hooks), steps=STEPS)


def test_hooks_see_what_they_would_see_after_each_step(tmp_path: Path) -> None:
    each, some, now = Each(), Some(), Now()
    run(tmp_path / "each", each)
    run(tmp_path / "some", some, now)
    seen = dict(each.seen)
    assert list(seen) == list(range(1, STEPS + 1))
    assert [step for step, _ in some.seen] == [1, 20, 40, 60]
    assert all(seen[step] == loss for step, loss in some.seen + now.seen)
    assert sum(now.made) == STEPS > len(now.made)
    a, b = weights(tmp_path / "each"), weights(tmp_path / "some")
    for key in a:
        np.testing.assert_array_equal(a[key], b[key])


def test_checkpoints_and_logs_are_exact(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lockstep"):
        run(tmp_path, save_checkpoints_steps=25, keep_checkpoint_max=9, log_step_count_steps=10)
    saved = [checkpoint.step_of(path) for path in checkpoint.all_checkpoints(str(tmp_path))]
    assert saved == [0, 25, 50, 60]
    lines = [r.getMessage() for r in caplog.records if "step = " in r.getMessage()]
    assert [int(text.split("step = ")[1].split(" ")[0].rstrip(",")) for text in lines] == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize("bad", [1, 17, 60])
def test_a_nan_in_any_step_is_found(tmp_path: Path, bad: int) -> None:
    """Also one that leaves no trace in the weights."""

    def model_fn(features: Any, labels: Any, mode: str) -> estimator.EstimatorSpec:
        predicted = keras.layers.Dense(1)(features)
        loss = jnp.mean((predicted - labels) ** 2)
        op = train.GradientDescentOptimizer(0.1).minimize(loss, train.get_global_step())
        shown = jnp.where(train.get_global_step() == bad - 1, jnp.nan, loss)
        return estimator.EstimatorSpec(mode, loss=shown, train_op=op)

    def data() -> Any:
        return Dataset.from_tensor_slices((np.ones((240, 2), "float32"), np.ones((240, 1), "float32"))).batch(4)

    made = estimator.Estimator(model_fn, str(tmp_path), RunConfig(save_checkpoints_steps=1000))
    with pytest.raises(estimator.NanLossDuringTrainingError):
        made.train(data, steps=STEPS)
