"""Functions that are scheduled one after another do what they do on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.distribute.experimental import partitioners
from tests.distribute.coordinator.local import make_cluster, make_coordinator
from tests.support.exhaustive import always

pytestmark = pytest.mark.slow
STEPS, BATCH = 6, 8


def _decay() -> Any:
    return keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda: keras.optimizers.Adam(0.05),
    "amsgrad": lambda: keras.optimizers.Adam(0.05, amsgrad=True),
    "AdamW": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.05, centered=True),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "Adadelta": lambda: keras.optimizers.Adadelta(0.5),
    "Adamax": lambda: keras.optimizers.Adamax(0.05),
    "Nadam": lambda: keras.optimizers.Nadam(0.05),
    "Ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "Lion": lambda: keras.optimizers.Lion(0.01),
    "Lamb": lambda: keras.optimizers.Lamb(0.05),
    "Adafactor": lambda: keras.optimizers.Adafactor(0.05),
    "schedule": lambda: keras.optimizers.Adam(_decay()),
    "clipped": lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.1),
    "averaged": lambda: keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5),
    "accumulating": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
}


# Others than these compute each element by itself, as Adam does.
_ALWAYS = {"SGD", "Adam", "Ftrl", "Adafactor", "schedule", "clipped", "averaged", "accumulating"}


@pytest.fixture(scope="module")
def cluster() -> dict[str, list[str]]:
    return make_cluster(2, 2)


def _batches() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS, BATCH, 5)).astype(np.float32)
    return [(a, a.sum(1, keepdims=True)) for a in x]


class _Training:
    """A model with everything that a step can change, and its step."""

    def __init__(self, make_optimizer: Callable[[], Any]) -> None:
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(6, use_bias=False), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        self.model = keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(1)])
        self.optimizer = make_optimizer()
        self.optimizer.build(self.model.trainable_variables)
        self.loss = keras.metrics.Mean()
        self.largest = keras.Variable(-1.0, trainable=False)
        self.last = keras.Variable(np.zeros(2, np.float32), trainable=False)

    def step(self, x: Any, y: Any) -> Any:
        def compute(weights: Any) -> Any:
            state = [v.value for v in self.model.non_trainable_variables]
            outputs, state = self.model.stateless_call(weights, state, x, training=True)[:2]
            return jnp.mean((outputs - y) ** 2), state

        weights = [v.value for v in self.model.trainable_variables]
        (loss, state), gradients = jax.value_and_grad(compute, has_aux=True)(weights)
        for variable, value in zip(self.model.non_trainable_variables, state, strict=True):
            variable.assign(value)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        self.loss.update_state(loss)
        self.largest.assign(jnp.maximum(self.largest.value, loss))
        self.last.assign(x[0, :2])
        return {"loss": loss, "rows": x.shape[0]}

    def values(self) -> dict[str, np.ndarray]:
        found = [*self.model.variables, *self.optimizer.variables, *self.loss.variables, self.largest, self.last]
        return {str(n): np.asarray(v.value) for n, v in enumerate(found)}


@pytest.mark.parametrize("name", always(OPTIMIZERS, _ALWAYS.__contains__))
def test_each_optimizer_follows_one_device(cluster: Any, name: str) -> None:
    alone = ls.distribute.OneDeviceStrategy("cpu:0")
    with alone.scope():
        expected = _Training(OPTIMIZERS[name])
    losses = [float(alone.run(expected.step, args=batch)["loss"]) for batch in _batches()]
    coordinator = make_coordinator(cluster, partitioners.FixedShardsPartitioner(2), staleness=0)
    with coordinator.strategy.scope():
        training = _Training(OPTIMIZERS[name])

    def step(x: Any, y: Any) -> Any:
        return coordinator.strategy.run(training.step, args=(x, y))

    results = coordinator.fetch([coordinator.schedule(step, args=batch) for batch in _batches()])
    assert [r["rows"] for r in results] == [BATCH] * STEPS
    np.testing.assert_allclose([r["loss"] for r in results], losses, rtol=2e-5, atol=1e-6)
    values = training.values()
    for key, value in expected.values().items():
        np.testing.assert_allclose(values[key], value, rtol=2e-4, atol=2e-6, err_msg=key)
