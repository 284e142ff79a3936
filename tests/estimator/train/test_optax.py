"""Gradient transformations of optax in a model_fn do what they do outside of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator import train as t
from tests.training.driver import Trained, spec, train

optax = pytest.importorskip("optax")

GRADIENTS = list(np.random.default_rng(3).normal(size=(6, 3)).astype(np.float32))
START = np.array([0.5, -1.0, 2.0], np.float32)


def _train(update: Callable[[Any], Any], replicas: int = 1) -> Trained:
    def model(rows: Any) -> Any:
        gradient = jnp.mean(rows, 0)
        w, b = keras.Variable(START, name="w"), keras.Variable(1.0, name="b")
        loss = jnp.sum(w.value * gradient) + b.value * gradient[0]
        return spec(update(loss), loss)

    return train(model, [np.tile(g, (5, 1)) for g in GRADIENTS], replicas)


def _by_optax(transformation: Any, with_value: bool = False) -> Any:
    params = {"w": jnp.asarray(START), "b": jnp.ones(())}
    state = transformation.init(params)
    for gradient in GRADIENTS:
        value = {"value": jnp.sum(params["w"] * gradient) + params["b"] * gradient[0]} if with_value else {}
        grads = {"w": jnp.asarray(gradient), "b": jnp.asarray(gradient[0])}
        updates, state = transformation.update(grads, state, params, **value)
        params = optax.apply_updates(params, updates)
    return params, state


def _plateau() -> Any:
    return optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau(patience=1))


MAKERS: dict[str, Callable[[], Any]] = {
    "adamw": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.05)),
    "scheduled": lambda: optax.sgd(optax.exponential_decay(0.1, 2, 0.5), momentum=0.9),
    "several steps": lambda: optax.MultiSteps(optax.adam(0.05), 2),
    "starts from the parameters": lambda: optax.contrib.schedule_free_adamw(0.05),
    "masked": lambda: optax.masked(optax.sgd(0.1), lambda params: {key: key == "w" for key in params}),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.05),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_inside_as_outside(name: str) -> None:
    make = MAKERS[name]
    params, state = _by_optax(make())
    done = _train(lambda loss: t.minimize(loss, make()))
    for key, value in params.items():
        np.testing.assert_allclose(done[key], value, rtol=1e-5, atol=1e-6)
    kept = {key for key in done.values if key.startswith("optax/")}
    leaves = {
        "optax/" + jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
    }
    assert kept == set(leaves)
    for key, leaf in leaves.items():
        assert done[key].dtype == leaf.dtype
        np.testing.assert_allclose(done[key], leaf, rtol=1e-5, atol=1e-6, err_msg=key)
    assert done["global_step"] == len(GRADIENTS)


def test_state_is_called_by_its_place() -> None:
    done = _train(lambda loss: t.group(t.minimize(loss, optax.adam(0.1)), t.minimize(loss, optax.adam(0.1))))
    assert {"optax/0/count", "optax/0/mu/w", "optax/0/nu/b", "optax_1/0/mu/w"} < set(done.values)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_loss_is_given_to_what_takes_it(replicas: int) -> None:
    params, state = _by_optax(_plateau(), with_value=True)
    done = _train(lambda loss: t.minimize(loss, _plateau()), replicas)
    np.testing.assert_allclose(done["w"], params["w"], rtol=1e-5)
    np.testing.assert_allclose(done["optax/1/scale"], state[1].scale)
    assert state[1].scale < 1


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_rate_may_be_computed_in_the_model_fn(replicas: int) -> None:
    def update(loss: Any) -> Any:
        return t.minimize(loss, optax.sgd(t.exponential_decay(0.1, t.get_global_step(), 2, 0.5), momentum=0.9))

    def constant(loss: Any) -> Any:
        return t.minimize(loss, optax.sgd(optax.exponential_decay(0.1, 2, 0.5), momentum=0.9))

    np.testing.assert_allclose(_train(update, replicas)["w"], _train(constant)["w"], rtol=1e-5)


def test_gradients_may_be_changed_first() -> None:
    def update(loss: Any) -> Any:
        pairs = [(g * 2 if v.path == "w" else None, v) for g, v in t.Optimizer(False, "any").compute_gradients(loss)]
        return t.apply_gradients(pairs, optax.sgd(0.1))

    done = _train(update)
    np.testing.assert_allclose(done["w"], START - 0.2 * np.sum(GRADIENTS, 0), rtol=1e-5)
    assert done["b"] == 1


def test_state_that_no_file_can_hold_is_refused() -> None:
    odd = optax.GradientTransformation(lambda params: {"key": jax.random.key(0)}, lambda g, s, p=None: (g, s))
    with pytest.raises(UnsupportedError, match="kept in checkpoints"):
        _train(lambda loss: t.minimize(loss, odd))


def test_half_an_optimizer_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a gradient transformation with init and update"):
        _train(lambda loss: t.minimize(loss, optax.exponential_decay(0.1, 2, 0.5)))
