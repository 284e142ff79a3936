"""Estimators whose trajectories must not depend on the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax

import lockstep as ls
from lockstep import estimator
from lockstep.estimator import train
from tests.engine.keras.cases import precision

GLOBAL_BATCH = 12
STEPS_DATA = 98  # Eight global batches, and one of two examples.
EVEN_DATA = 96


def _data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 4)).astype(keras.config.floatx())
    return features, np.sin(features.sum(1, keepdims=True)).astype(features.dtype)


def _input_fn(strategy: Any, rows: int) -> Callable[..., Any]:
    """Global batches of the same examples, whatever the layout: each replica gets its part of them."""

    def input_fn(input_context: Any = None) -> Any:
        replicas = strategy.num_replicas_in_sync
        dataset = ls.data.Dataset.from_tensor_slices(_data(rows))
        if input_context:
            dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        return dataset.batch(GLOBAL_BATCH // replicas)

    return input_fn


def _layers(batch_norm: bool = False) -> keras.Sequential:
    found = [keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(1)]
    return keras.Sequential([found[0], keras.layers.BatchNormalization(), found[1]] if batch_norm else found)


def _summed(features: Any, labels: Any, mode: str) -> Any:
    """A loss that is a sum: replicas' losses, and gradients, are added up."""
    loss = keras.losses.MeanSquaredError(reduction="sum")(labels, _layers()(features))
    return _spec(mode, loss, train.GradientDescentOptimizer(0.01).minimize(loss, _step()))


def _clipped_sum(features: Any, labels: Any, mode: str) -> Any:
    loss = keras.losses.MeanSquaredError(reduction="sum")(labels, _layers()(features))
    return _spec(mode, loss, _clipped(loss))


def _spec(mode: str, loss: Any, train_op: Any) -> estimator.EstimatorSpec:
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _regression(optimize: Callable[[Any], Any], batch_norm: bool = False) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = jnp.mean((_layers(batch_norm)(features, training=True) - labels) ** 2)
        return _spec(mode, loss, optimize(loss))

    return model_fn


def _step() -> Any:
    return train.get_or_create_global_step()


def _clipped(loss: Any) -> Any:
    optimizer = train.MomentumOptimizer(0.1, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = train.clip_by_global_norm(gradients, 0.3)
    return optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=_step())


def _decayed(loss: Any) -> Any:
    rate = train.exponential_decay(0.3, _step(), 2, 0.7)
    return train.GradientDescentOptimizer(rate).minimize(loss, global_step=_step())


def _two_networks(features: Any, labels: Any, mode: str) -> Any:
    """A GAN's shape: two losses, each of which trains variables of its own."""
    first, second = keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)
    made = first(features)
    judged = second(made)
    loss_of_second = jnp.mean((judged - labels) ** 2)
    loss_of_first = jnp.mean(judged**2) + 0.1 * jnp.mean(made**2)
    ops = [
        train.AdamOptimizer(0.02).minimize(loss_of_second, global_step=_step(), var_list=second.trainable_variables),
        train.RMSPropOptimizer(0.01).minimize(loss_of_first, var_list=first.trainable_variables),
    ]
    return _spec(mode, loss_of_first + loss_of_second, train.group(*ops))


def _clipped_networks(features: Any, labels: Any, mode: str) -> Any:
    """Two losses, whose gradients are clipped apart."""
    first, second = keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)
    made = first(features)
    judged = second(made)
    loss_of_first, loss_of_second = jnp.mean(judged**2) + jnp.mean(made**2), jnp.mean((judged - labels) ** 2)
    optimizer = train.AdagradOptimizer(0.1)
    pairs = [
        *optimizer.compute_gradients(loss_of_first, first.trainable_variables),
        *optimizer.compute_gradients(loss_of_second, second.trainable_variables),
    ]
    clipped = [(train.clip_by_norm(gradient, 0.1), variable) for gradient, variable in pairs]
    return _spec(mode, loss_of_first + loss_of_second, optimizer.apply_gradients(clipped, global_step=_step()))


def _steeper(loss: Any) -> Any:
    """Gradients of a loss that is made of gradients."""
    optimizer = train.GradientDescentOptimizer(0.1)
    norm = train.global_norm([gradient for gradient, _ in optimizer.compute_gradients(loss)])
    return optimizer.apply_gradients(optimizer.compute_gradients(loss * (1 + norm)), global_step=_step())


def _slower(loss: Any) -> Any:
    """A rate, and a variable, that are made of gradients."""
    norm = train.global_norm([g for g, _ in train.GradientDescentOptimizer(1.0).compute_gradients(loss)])
    seen = keras.Variable(0.0, trainable=False, name="seen")
    seen.assign(0.5 * seen + norm)
    return train.MomentumOptimizer(0.1 / (1 + norm), 0.9).minimize(loss, global_step=_step())


def _keras_schedule(loss: Any) -> Any:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 3, 0.8)
    return train.minimize(loss, keras.optimizers.Adam(schedule, global_clipnorm=0.5))


MODEL_FNS: dict[str, Callable[..., Any]] = {
    "sgd": _regression(lambda loss: train.GradientDescentOptimizer(0.2).minimize(loss, global_step=_step())),
    "adam": _regression(lambda loss: train.AdamOptimizer(0.02).minimize(loss, global_step=_step())),
    "optax": _regression(lambda loss: train.minimize(loss, optax.adamw(0.02))),
    "clipping": _regression(_clipped),
    "decay": _regression(_decayed),
    "keras": _regression(_keras_schedule),
    "two networks": _two_networks,
    "a sum": _summed,
    "clipping a sum": _clipped_sum,
    "clipping two networks": _clipped_networks,
    "gradients of gradients": _regression(_steeper),
    "a rate of gradients": _regression(_slower),
    "batch normalisation": _regression(lambda loss: train.minimize(loss, optax.sgd(0.1)), batch_norm=True),
}
# Batch normalisation sees the global batch only where the replicas can divide it.
ROWS = {"batch normalisation": EVEN_DATA}


def run(strategy: Any, case: str, floatx: str, model_dir: str, optimized: bool = False) -> dict[str, np.ndarray]:
    """Trains a case from the same seed; returns the variables, and the loss of each step."""
    # Threads that read data must follow too: `precision` is for the calling thread only.
    jax.config.update("jax_enable_x64", floatx == "float64")
    try:
        with precision(floatx, optimized):
            return _train(strategy, case, model_dir)
    finally:
        jax.config.update("jax_enable_x64", False)


def _train(strategy: Any, case: str, model_dir: str) -> dict[str, np.ndarray]:
    seen: list[float] = []

    class Losses(estimator.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return estimator.SessionRunArgs("loss")

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(float(run_values.results))

    config = estimator.RunConfig(tf_random_seed=1, train_distribute=strategy)
    trained = estimator.Estimator(MODEL_FNS[case], model_dir, config)
    trained.train(_input_fn(strategy, ROWS.get(case, STEPS_DATA)), hooks=[Losses()])
    values = {name: trained.get_variable_value(name) for name in trained.get_variable_names()}
    return {"losses": np.asarray(seen), **values}
