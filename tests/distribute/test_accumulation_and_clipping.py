"""Accumulated and clipped gradients mean the same on several replicas as on one: in fit, Estimators and own loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

import lockstep as ls
from tests.distribute.test_gradient_dtype import mirrored
from tests.support.exhaustive import always

optax = pytest.importorskip("optax")

Options = ls.distribute.CommunicationOptions
RNG = np.random.default_rng(0)
# Batches of 8, and a last one of 5. Large enough that each limit below counts in some steps, and not in others.
X = RNG.normal(size=(53, 6)).astype("float32") * np.linspace(0.2, 3, 53, dtype="float32")[:, None]
Y = RNG.normal(size=(53, 3)).astype("float32")
STRATEGIES: dict[str, Callable[[], Any]] = {
    "global": lambda: mirrored(None, 2),
    "replica": lambda: mirrored(Options(bytes_per_pack=1 << 20), 2),
    "replica, four": lambda: mirrored(Options(implementation="ring"), 4),
}
KERAS: dict[str, Callable[[], Any]] = {
    "accumulation": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=3),
    "global norm": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5),
    "norm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.3),
    "value": lambda: keras.optimizers.SGD(0.1, clipvalue=0.05),
    "accumulation, global norm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.5, gradient_accumulation_steps=2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, global_clipnorm=0.5, gradient_accumulation_steps=2), 8.0, dynamic_growth_steps=3
    ),
}


def _fitted(strategy: Any, make: Callable[[], Any]) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(3)])
        model.compile(make(), "mse")
    model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()


def _assert_close(found: Any, expected: Any) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=2e-6), found, expected
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", always(KERAS, {"accumulation", "scaled"}.__contains__))
def test_keras(name: str) -> None:
    alone = _fitted(ls.distribute.get_strategy(), KERAS[name])
    for make in STRATEGIES.values():
        _assert_close(_fitted(make(), KERAS[name]), alone)


def _clipped(loss: Any) -> Any:
    optimizer = ls.estimator.train.MomentumOptimizer(0.1, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = ls.estimator.train.clip_by_global_norm(list(gradients), 0.5)
    return optimizer.apply_gradients(list(zip(clipped, variables, strict=True)), ls.estimator.train.get_global_step())


def _by_optax(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda loss: ls.estimator.train.minimize(loss, make())


TRANSFORMATIONS: dict[str, Callable[[], Any]] = {
    "several steps": lambda: optax.MultiSteps(optax.adam(0.01), 3),
    "global norm": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, momentum=0.9)),
    "clipped several steps": lambda: optax.MultiSteps(optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1)), 2),
    "apply every": lambda: optax.chain(optax.clip(0.05), optax.sgd(0.1), optax.apply_every(2)),
}
UPDATES: dict[str, Callable[[Any], Any]] = {
    "clip_by_global_norm": _clipped,
    **{name: _by_optax(make) for name, make in TRANSFORMATIONS.items()},
}


def _estimated(directory: Path, strategy: Any, update: Callable[[Any], Any]) -> dict[str, np.ndarray]:
    """Trains on 48 rows; the batch of an Estimator's input_fn is that of a replica."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = jnp.mean((layers.Dense(3)(layers.Dense(5, activation="tanh")(features)) - labels) ** 2)
        return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=update(loss))

    def input_fn() -> Any:
        each = 8 // (1 if strategy is None else strategy.num_replicas_in_sync)
        return ls.data.Dataset.from_tensor_slices((X[:48], Y[:48])).batch(each)

    config = ls.estimator.RunConfig(tf_random_seed=1, train_distribute=strategy)
    trained = ls.estimator.Estimator(model_fn, str(directory), config)
    trained.train(input_fn)
    return {name: trained.get_variable_value(name) for name in trained.get_variable_names()}


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_estimators(tmp_path: Path, name: str) -> None:
    alone = _estimated(tmp_path / "alone", None, UPDATES[name])
    _assert_close(_estimated(tmp_path / "two", mirrored(None, 2), UPDATES[name]), alone)


def _looped(strategy: Any, view: Any, transformation: Any) -> Any:
    params = {"w": jnp.asarray(RNG_W), "b": jnp.zeros(3)}

    def step(state: Any, batch: Any) -> Any:
        params, optimizer = state
        x, y = batch
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) - y) ** 2))(params)
        if view == "replica":
            context = ls.distribute.get_replica_context()
            assert context is not None
            grads = context.average_gradients(grads)
        updates, optimizer = transformation.update(grads, optimizer, params)
        return (optax.apply_updates(params, updates), optimizer), {"loss": loss}

    program = ls.training.Program(step, strategy, view=view)
    data = ls.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    return program.fit((params, transformation.init(params)), data, epochs=2, verbose=0)


RNG_W = RNG.normal(size=(6, 3)).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("name", always(TRANSFORMATIONS, {"several steps", "global norm"}.__contains__))
def test_own_loops(name: str) -> None:
    transformation = TRANSFORMATIONS[name]()
    alone = _looped(ls.distribute.get_strategy(), "global", transformation)
    _assert_close(_looped(mirrored(None, 2), "global", transformation), alone)
    _assert_close(_looped(mirrored(None, 2), "replica", transformation), alone)
    packed = mirrored(Options(bytes_per_pack=100), 4)
    _assert_close(_looped(packed, "replica", transformation), alone)
