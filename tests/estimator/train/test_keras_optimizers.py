"""Optimizers of Keras in a model_fn do what they do outside of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator import train as t
from tests.training.driver import Trained, spec, train

GRADIENTS = list(np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32))
START = np.array([0.5, -1.0, 2.0], np.float32)
SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)

MAKERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(SCHEDULE, momentum=0.9, nesterov=True),
    "adamw": lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1, clipnorm=0.5),
    "averaged": lambda: keras.optimizers.RMSprop(0.05, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
    "accumulated": lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=2),
    "clipped": lambda: keras.optimizers.Adagrad(0.05, global_clipnorm=0.3),
    "muon": lambda: keras.optimizers.Lion(0.05, clipvalue=0.2),
}


def _train(update: Callable[[Any], Any], gradients: Any = None, replicas: int = 1) -> Trained:
    def model(rows: Any) -> Any:
        gradient = jnp.mean(rows, 0)
        w = keras.Variable(START, name="w")
        loss = jnp.sum(w.value * gradient)
        return spec(update(loss), loss)

    return train(model, [np.tile(g, (5, 1)) for g in gradients or GRADIENTS], replicas)


def _by_keras(optimizer: Any) -> dict[str, Any]:
    w = keras.Variable(START, name="w")
    for gradient in GRADIENTS:
        optimizer.apply([jnp.asarray(gradient)], [w])
    # Outside, an automatic name has a number.
    own = {f"{_automatic(optimizer)}/{v.path.split('/')[-1]}": np.asarray(v.value) for v in optimizer.variables}
    return {"w": np.asarray(w.value), **own}


def _automatic(optimizer: Any) -> str:
    return re.sub(r"_\d+$", "", optimizer.name)


def _check(done: Trained, expected: dict[str, Any]) -> None:
    assert set(done.values) - {"global_step"} == set(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(done[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_inside_as_outside(name: str) -> None:
    make = MAKERS[name]
    done = _train(lambda loss: t.minimize(loss, make()))
    _check(done, _by_keras(make()))
    assert done["global_step"] == len(GRADIENTS)


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_optimizer_from_outside_is_copied(replicas: int) -> None:
    outside = keras.optimizers.AdamW(0.3, weight_decay=0.1)
    outside.exclude_from_weight_decay(var_names=["w"])
    outside.learning_rate = 0.05
    done = _train(lambda loss: t.minimize(loss, outside), replicas=replicas)
    again = _train(lambda loss: t.minimize(loss, outside), replicas=replicas)
    expected = keras.optimizers.AdamW(0.05, weight_decay=0.1)
    expected.exclude_from_weight_decay(var_names=["w"])
    _check(done, _by_keras(expected))
    _check(again, {key: value for key, value in done.values.items() if key != "global_step"})
    assert outside.iterations.value == 0
    assert not outside.built


def test_an_optimizer_from_outside_is_copied_once_per_call() -> None:
    outside = keras.optimizers.SGD(0.1)
    done = _train(lambda loss: t.group(t.minimize(loss, outside), t.minimize(loss, outside)))
    assert done["sgd/iteration"] == 2 * len(GRADIENTS)
    assert done["global_step"] == 2 * len(GRADIENTS)


def test_gradients_may_be_changed_first() -> None:
    def update(loss: Any) -> Any:
        pairs = [(g * 2, v) for g, v in t.Optimizer(False, "any").compute_gradients(loss)]
        return t.apply_gradients(pairs, keras.optimizers.SGD(0.1))

    np.testing.assert_allclose(_train(update)["w"], START - 0.2 * np.sum(GRADIENTS, 0), rtol=1e-5)


def test_a_loss_is_scaled_and_gradients_are_scaled_back() -> None:
    done = _train(lambda loss: t.minimize(loss, keras.optimizers.SGD(0.1, loss_scale_factor=128.0)))
    np.testing.assert_allclose(done["w"], START - 0.1 * np.sum(GRADIENTS, 0), rtol=1e-5)


def test_steps_that_overflow_are_left_out() -> None:
    def make() -> Any:
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 1024.0, dynamic_growth_steps=3)

    broken = [*GRADIENTS[:4], np.full(3, np.inf, np.float32), *GRADIENTS[4:]]
    done = _train(lambda loss: t.minimize(loss, make()), broken)
    np.testing.assert_allclose(done["w"], START - 0.1 * np.sum(GRADIENTS, 0), rtol=1e-5)
    # Doubled after three steps, halved by the broken one, doubled after three more.
    assert done["loss_scale_optimizer/dynamic_scale"] == 2048
    assert done["sgd/iteration"] == len(GRADIENTS)


def test_a_rate_computed_in_the_model_fn_is_refused() -> None:
    def closed(loss: Any) -> Any:
        rate = t.exponential_decay(0.1, t.get_global_step(), 2, 0.5)
        return t.minimize(loss, keras.optimizers.SGD(lambda: rate))

    with pytest.raises(ArgumentError, match=r"Use a keras\.optimizers\.schedules\.LearningRateSchedule, or an opti"):
        _train(closed)


def test_a_function_may_give_the_rate() -> None:
    done = _train(lambda loss: t.minimize(loss, keras.optimizers.SGD(lambda: 0.1)))
    np.testing.assert_allclose(done["w"], START - 0.1 * np.sum(GRADIENTS, 0), rtol=1e-5)


def test_an_optimizer_without_a_config_must_be_made_inside() -> None:
    class Mine(keras.optimizers.SGD):
        def __init__(self, only_mine: float) -> None:
            super().__init__(only_mine)

    outside = Mine(0.1)
    with pytest.raises(ArgumentError, match=r"Received: Mine, for which that fails.*Make it in the model_fn"):
        _train(lambda loss: t.minimize(loss, outside))
    inside = _train(lambda loss: t.minimize(loss, Mine(0.1)))
    np.testing.assert_allclose(inside["w"], START - 0.1 * np.sum(GRADIENTS, 0), rtol=1e-5)


def test_an_optimizer_kept_from_another_call_is_refused() -> None:
    kept: list[Any] = []

    def update(loss: Any) -> Any:
        kept.append(keras.optimizers.SGD(0.1))
        return t.minimize(loss, kept[0])

    with pytest.raises(ArgumentError, match="made in another call of a model_fn and kept"):
        _train(update)
