"""Options with a meaning per replica: the step written for one replica, with explicit reductions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import lockstep as ls
from tests.engine.keras.cases import precision

distribute = ls.distribute
ROWS, BATCH = 53, 12


def _workers(**options: Any) -> Any:
    return distribute.MultiWorkerMirroredStrategy(communication_options=distribute.CommunicationOptions(**options))


EXPLICIT: dict[str, Callable[[], Any]] = {
    "hierarchical": lambda: distribute.MirroredStrategy(
        cross_device_ops=distribute.HierarchicalCopyAllReduce(num_packs=2)
    ),
    "one device": lambda: distribute.MirroredStrategy(cross_device_ops=distribute.ReductionToOneDevice()),
    "ring": lambda: _workers(implementation="RING"),
    "ring, by name": lambda: distribute.experimental.MultiWorkerMirroredStrategy("ring"),
    "packs": lambda: _workers(bytes_per_pack=300),
    "hierarchical on three": lambda: distribute.MirroredStrategy(
        ["cpu:0", "cpu:1", "cpu:3"], distribute.HierarchicalCopyAllReduce()
    ),
}


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 6)), rng.integers(0, 3, ROWS, dtype="int32")


def _train(strategy: Any, *middle: Any, optimizer: Any = None) -> keras.Model:
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(9, activation="tanh", kernel_regularizer="l2"), *middle, layers.Dense(3)]
        )
        model.compile(
            optimizer or keras.optimizers.SGD(0.1, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    x, y = _data()
    weights = np.random.default_rng(1).uniform(0.5, 2, ROWS)
    model.fit(x, y, sample_weight=weights, batch_size=BATCH, epochs=3, verbose=0)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("normalised", [False, True])
def test_gradients_are_those_of_one_device(name: str, normalised: bool) -> None:
    weights, history = _trained(None, normalised)
    found, its_history = _trained(name, normalised)
    for a, b in zip(found, weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    for key, values in history.items():
        np.testing.assert_allclose(its_history[key], values, rtol=0, atol=1e-9)


@cache
def _trained(name: str | None, normalised: bool) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Weights and history; on one device without a name."""
    with precision("float64"):
        middle = [layers.BatchNormalization()] if normalised else []
        model = _train(distribute.get_strategy() if name is None else EXPLICIT[name](), *middle)
        return model.get_weights(), model.history.history


def test_these_options_take_the_replica_view() -> None:
    assert all(make()._replicas.explicit for make in EXPLICIT.values())
    assert not distribute.MirroredStrategy()._replicas.explicit
    assert not distribute.OneDeviceStrategy("cpu:0")._replicas.explicit


def test_batch_statistics_of_each_replica() -> None:
    """As TensorFlow: each replica normalises with its own moments; moving averages are averaged."""
    x, y = np.random.default_rng(2).normal(size=(12, 5)), np.zeros((12, 5))
    with precision("float64"):
        with distribute.MirroredStrategy(batch_statistics="replica").scope():
            model = keras.Sequential([keras.Input((5,)), layers.BatchNormalization(momentum=0.9, epsilon=1e-3)])
            model.compile(keras.optimizers.SGD(0.5), "mse")
        model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
        gamma, beta, mean, variance = model.get_weights()
    shares = x.reshape(4, 3, 5)
    means, variances = shares.mean(1), shares.var(1)
    outputs = (shares - means[:, None]) / np.sqrt(variances[:, None] + 1e-3)
    # The loss is the mean of squares; its gradient by gamma and beta, averaged over the replicas.
    gradient = 2 * outputs / (3 * 5)
    np.testing.assert_allclose(mean, 0.1 * means.mean(0), atol=1e-12)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * variances.mean(0), atol=1e-12)
    np.testing.assert_allclose(gamma, 1 - 0.5 * (gradient * outputs).sum(1).mean(0), atol=1e-12)
    np.testing.assert_allclose(beta, -0.5 * gradient.sum(1).mean(0), atol=1e-12)


class _Masks(layers.Layer):
    """Multiplies each example by a random number."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        return x * keras.random.uniform(keras.ops.shape(x), seed=self.seeds)


def test_replicas_draw_different_random_numbers_from_equal_seeds() -> None:
    strategy = distribute.MirroredStrategy(batch_statistics="replica")

    with strategy.scope():
        inputs = keras.Input((1,))
        model = keras.Model(inputs, layers.Dense(1, use_bias=False, kernel_initializer="ones")(_Masks()(inputs)))
        model.compile(keras.optimizers.SGD(0.0), "mse")
    before = np.asarray(model.layers[1].seeds.state)
    # One example per replica with input 1 and target 0: the mean of the squares of what they drew.
    loss = model.train_on_batch(np.ones((4, 1)), np.zeros((4, 1)))
    after = np.asarray(model.layers[1].seeds.state)
    same = float(keras.random.uniform((1, 1), seed=keras.random.SeedGenerator(3))[0, 0]) ** 2
    assert abs(loss - same) > 1e-3
    assert (after[0], after[1]) == (before[0], before[1] + 1)


@pytest.mark.slow
def test_optimizers_that_wrap_others_average_once() -> None:
    with precision("float64"):
        scaled = [
            _train(s, optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=8.0))
            for s in (distribute.get_strategy(), distribute.MirroredStrategy(batch_statistics="replica"))
        ]
    for a, b in zip(*(m.get_weights() for m in scaled), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
