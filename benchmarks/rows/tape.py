"""Row 10: a training step with `tf.GradientTape`, as plain Python and as a `tf.function`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness.case import OURS, TENSORFLOW, Bar, Case, Side

_MODULE, _RATE = "benchmarks.rows.tape", "steps/s"
_JAX = "the step in jax.jit"
# Numbers of inputs, of each hidden layer's units, and of examples: a small step of 10,000 weights, and a larger one.
_SIZES = {"small": (64, (100, 32), 32), "large": (784, (512, 512), 256)}
_RATE_OF_ADAM, _CLASSES = 1e-3, 10


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """A program of TensorFlow's, with its import changed."""
    import lockstep.compat.tensorflow as tf

    return _tensorflow_step(tf, options)


def tensorflow(options: Mapping[str, Any]) -> dict[str, float]:
    """The same program in TensorFlow."""
    import tensorflow as tf

    return _tensorflow_step(tf, options)


def _tensorflow_step(tf: Any, options: Mapping[str, Any]) -> dict[str, float]:
    x, y, hidden = _examples(options["size"])
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in hidden]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(_CLASSES)])
    model.build((None, x.shape[1]))
    optimizer = tf.keras.optimizers.Adam(_RATE_OF_ADAM)
    compute_loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = tf.keras.metrics.Mean()

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = compute_loss(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(loss)
        return loss

    run = step if options["eager"] else tf.function(step)
    inputs, labels = tf.identity(tf.constant(x)), tf.identity(tf.constant(y))
    return {_RATE: _steps_per_second(lambda: run(inputs, labels), lambda loss: loss.numpy(), options["seconds"])}


def jax_jit(options: Mapping[str, Any]) -> dict[str, float]:
    """The same step in jax.numpy, with its state given away."""
    import jax
    import jax.numpy as jnp

    x, y, hidden = _examples(options["size"])
    sizes = [x.shape[1], *hidden, _CLASSES]
    random = np.random.default_rng(0)
    shapes = [s for n, m in itertools.pairwise(sizes) for s in ((n, m), (m,))]
    weights = [jnp.asarray(random.normal(size=s) * (0.05 if len(s) > 1 else 0), jnp.float32) for s in shapes]

    def compute_loss(weights: Any, x: Any, y: Any) -> Any:
        for i in range(0, len(weights), 2):
            x = x @ weights[i] + weights[i + 1]
            x = jax.nn.relu(x) if i + 2 < len(weights) else x
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    def step(state: Any, x: Any, y: Any) -> Any:
        weights, first, second, count, total, steps = state
        loss, gradients = jax.value_and_grad(compute_loss)(weights, x, y)
        count = count + 1
        rate = _RATE_OF_ADAM * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        first = [m + 0.1 * (g - m) for m, g in zip(first, gradients, strict=True)]
        second = [v + 0.001 * (g * g - v) for v, g in zip(second, gradients, strict=True)]
        moments = zip(weights, first, second, strict=True)
        weights = [w - rate * m / (jnp.sqrt(v) + 1e-7) for w, m, v in moments]
        return (weights, first, second, count, total + loss, steps + 1), loss

    zeros = [[jnp.zeros_like(w) for w in weights] for _ in range(2)]
    state: Any = (weights, *zeros, jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    compiled = jax.jit(step, donate_argnums=0)
    inputs, labels = jnp.asarray(x), jnp.asarray(y)

    def run() -> Any:
        nonlocal state
        state, loss = compiled(state, inputs, labels)
        return loss

    return {_RATE: _steps_per_second(run, np.asarray, options["seconds"])}


def _examples(size: str) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    features, hidden, batch = _SIZES[size]
    random = np.random.default_rng(0)
    x = random.normal(size=(batch, features)).astype(np.float32)
    return x, random.integers(0, _CLASSES, batch).astype(np.int32), hidden


def _steps_per_second(run: Callable[[], Any], wait: Callable[[Any], Any], seconds: float) -> float:
    for _ in range(10):
        wait(run())
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        # One wait for many steps: they are dispatched ahead, as in a program that prints its loss now and then.
        for _ in range(20):
            result = run()
        wait(result)
        count += 20
    return count / (time.perf_counter() - start)


def _case(size: str, title: str) -> Case:
    eager, compiled = {"size": size, "eager": True}, {"size": size, "eager": False}
    return Case(
        row=10,
        name=f"tape, {size}",
        title=title,
        module=_MODULE,
        metrics={_RATE: "steps with the same batch; every twentieth is waited for"},
        batch=_SIZES[size][2],
        sides=[
            Side(f"{OURS}, tf.function", "lockstep", "lockstep", "ours", compiled),
            Side(f"{OURS}, eager", "lockstep", "lockstep", "ours", eager),
            Side(f"{TENSORFLOW}, tf.function", "tensorflow", "tensorflow", options=compiled),
            Side(f"{TENSORFLOW}, eager", "tensorflow", "tensorflow", options=eager),
            Side(_JAX, "jax_jit", "jax", "ceiling", {"size": size}),
        ],
        bars=[
            Bar(f"x {_JAX}, {size}", (f"{OURS}, tf.function", _RATE), [(_JAX, _RATE)], 1 / 1.1),
            Bar(
                f"x TensorFlow's eager step, {size}", (f"{OURS}, eager", _RATE), [(f"{TENSORFLOW}, eager", _RATE)], 0.5
            ),
        ],
    )


CASES = [
    _case("small", "A step with GradientTape: MLP 64-100-32-10, batch 32, Adam, a metric"),
    _case("large", "A step with GradientTape: MLP 784-512-512-10, batch 256, Adam, a metric"),
]
