"""Estimators whose replicas train by themselves in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep import estimator
from lockstep.data import Dataset
from lockstep.distribute import LocalSteps
from lockstep.estimator import train
from tests.estimator import resuming
from tests.estimator.test_resume import check

_AVERAGING = LocalSteps(1, outer_learning_rate=1.0, outer_momentum=0.0)


def mirrored(local_steps: LocalSteps | None) -> Any:
    return ls.distribute.MirroredStrategy(["cpu:0", "cpu:1"], local_steps=local_steps)


def _model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> estimator.EstimatorSpec:
    hidden = keras.layers.Dense(5, activation="tanh")(features)
    outputs = keras.layers.Dense(3)(hidden)
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, outputs, reduction=params["reduction"])
    optimizer = train.GradientDescentOptimizer(0.02)
    return estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, train.get_global_step()))


def _trained(strategy: Any, directory: Path, reduction: str) -> dict[str, np.ndarray]:
    """Batches of 3 for each replica, and a last one of 5 rows for both."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(41, 4)).astype("float32"), rng.integers(0, 3, 41, dtype="int32")
    config = estimator.RunConfig(train_distribute=strategy, tf_random_seed=5)
    made = estimator.Estimator(_model_fn, str(directory), config, {"reduction": reduction})
    made.train(lambda: Dataset.from_tensor_slices(data).batch(3))
    names = [name for name in made.get_variable_names() if not name.startswith("lockstep/")]
    return {name: made.get_variable_value(name) for name in names}


@pytest.mark.slow
def test_rounds_of_one_step_are_training_together(tmp_path: Path) -> None:
    """Also with a loss that is a sum over all examples."""
    reduction = "weighted_sum"
    expected = _trained(mirrored(None), tmp_path / "together", reduction)
    found = _trained(mirrored(_AVERAGING), tmp_path / "rounds", reduction)
    assert found.keys() == expected.keys() and found["global_step"] == 7
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("at", "how"), [(7, "error"), (10, "preempted")])
def test_it_goes_on_to_the_bit(at: int, how: str, tmp_path: Path) -> None:
    """With what each replica has in a round, and at the end of training with all that it came to."""
    strategy = mirrored(LocalSteps(5))
    expected = resuming.run(strategy, str(tmp_path / "whole"))
    assert "interrupted" in resuming.run(strategy, str(tmp_path / "parts"), at=at, how=how)
    check(resuming.run(strategy, str(tmp_path / "parts")), expected)
    together = resuming.run(mirrored(None), str(tmp_path / "together"))
    assert jnp.abs(together["dense/kernel"] - expected["dense/kernel"]).max() > 1e-4
    assert expected["lockstep/residuals/common/count"] == 0
