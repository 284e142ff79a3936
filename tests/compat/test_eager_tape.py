"""Tapes in plain Python: TensorFlow's numbers, those of jax.grad, and values that are there at once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep.compat.tensorflow as tf
from lockstep.compat.tensorflow._tape import backward
from tests.compat.tape_cases import EXPECTED, plain, programs


@pytest.mark.slow
def test_derivatives_are_those_of_tensorflow() -> None:
    found: dict[str, Any] = {}
    programs(tf, lambda name, value: found.update({name: plain(value)}))
    for name, expected in json.loads(EXPECTED.read_text()).items():
        jax.tree.map(
            lambda a, b, name=name: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name),
            found[name],
            expected,
        )


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda x, y: x * y,
    "sin": lambda x, y: jnp.sin(x) + y,
    "relu": lambda x, y: jax.nn.relu(x) * y,
    "dot": lambda x, y: jnp.outer(x, y) @ x,
    "stop": lambda x, y: jax.lax.stop_gradient(x) * y,
    "scan": lambda x, y: jax.lax.scan(lambda c, e: (c * y + e, None), x, jnp.ones((2, 3)))[0],
    "cond": lambda x, y: jax.lax.cond(x[0] > 0, lambda a: a * y, lambda a: a - y, x),
    "softmax": lambda x, y: jax.nn.softmax(x) + y[::-1],
    "split": lambda x, y: jnp.concatenate([x[1:], y[:1]]),
    "max": lambda x, y: jnp.maximum(x, y).sum() * x,
    "while": lambda x, y: jax.lax.fori_loop(0, 2, lambda i, c: c * 0.5 + y, x),
}


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.booleans()), max_size=6), st.booleans())
@settings(deadline=None, max_examples=15)
def test_derivatives_of_any_path_are_those_of_jax(steps: list[tuple[str, bool]], second: bool) -> None:
    def path(a: Any, b: Any) -> Any:
        x, y = a, b
        for name, swap in steps:
            x, y = (y, STEPS[name](x, y)) if swap else (STEPS[name](x, y), y)
        return jnp.sum(jnp.tanh(x) + y * y)

    a, b = jnp.asarray([0.3, -0.7, 1.1]), jnp.asarray([0.9, 0.2, -0.4])
    with tf.GradientTape() as outer:
        outer.watch((a, b))
        with tf.GradientTape() as tape:
            tape.watch((a, b))
            total = path(a, b)
        first = tape.gradient(total, [a, b], unconnected_gradients="zero")
        squares = sum(jnp.sum(g * g) for g in first)
    expected = jax.grad(path, (0, 1))(a, b)
    for ours, theirs in zip(first, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    if second:
        of_squares = jax.grad(lambda a, b: sum(jnp.sum(g * g) for g in jax.grad(path, (0, 1))(a, b)), (0, 1))(a, b)
        found = outer.gradient(squares, [a, b], unconnected_gradients="zero")
        for ours, theirs in zip(found, of_squares, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_values_are_there_at_once_and_are_ordinary_tensors() -> None:
    v, x = tf.Variable(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * v
        assert f"{float(y):.1f}" == "6.0" and y.numpy() == 6 and bool(y > 5)
        # A decision on values, as Python takes it.
        y = y * v if y > 5 else y
        v.assign(7.0)
    assert isinstance(y, tf.Tensor) and type(y) is type(jnp.ones(1)) and float(v) == 7
    assert pickle.loads(pickle.dumps(np.asarray(y))) == 12 and jax.jit(jnp.sin)(y) == jnp.sin(12.0)
    assert [float(g) for g in tape.gradient(y, [x, v])] == [4, 12]


HOST: dict[str, tuple[Callable[[Any], Any], float]] = {
    "operator": (lambda x: 2.0 * x - x / 4.0, 1.75),
    "unary": (lambda x: abs(-x), 1.0),
    "with a variable": (lambda x: x * tf.Variable(5.0), 5.0),
    "tf": (lambda x: tf.square(x) + tf.add_n([x, x]), 8.0),
    "list": (lambda x: tf.stack([x, 1.0, x]), 2.0),
    "jax": (lambda x: jnp.square(jnp.asarray(x)), 6.0),
    "jit": (jax.jit(lambda x: x * x), 6.0),
    "keras": (lambda x: keras.ops.multiply(keras.ops.convert_to_tensor(x), 3.0), 3.0),
    "layer": (lambda x: keras.layers.Dense(1, kernel_initializer="ones")(tf.reshape(x, (1, 1))), 1.0),
    "loss": (lambda x: keras.losses.MeanSquaredError()(tf.constant([[1.0]]), tf.reshape(x, (1, 1))), 4.0),
}


@pytest.mark.parametrize("name", HOST)
def test_a_watched_tensor_of_the_host_is_recorded_wherever_it_goes(name: str) -> None:
    function, expected = HOST[name]
    x, other = tf.constant(3.0), tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = function(x)
    assert float(tape.gradient(y, x)) == pytest.approx(expected)
    # Another tensor of the same value is not this one, and neither is it itself without a tape.
    assert tape.gradient(y, other) is None and type(x * 2.0).__name__ == "HostTensor"


def test_variables_that_share_a_value_have_derivatives_of_their_own() -> None:
    online, target = tf.Variable([1.0, 2.0]), tf.Variable([0.0, 0.0])
    target.assign(online.value)
    held = online.value
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(online * target + (online - held) ** 2)
    assert [g.tolist() for g in tape.gradient(loss, [online, target])] == [[1, 2], [1, 2]]


@pytest.mark.slow
def test_a_network_is_trained_as_by_jax_and_compiles_once() -> None:
    x = np.random.RandomState(0).randn(12, 3).astype("float32")

    def network() -> Any:
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(4, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        return keras.Sequential([keras.Input((3,)), *layers])

    model, optimizer, count = network(), keras.optimizers.SGD(0.1), []
    for _ in range(4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - x[:, :1]) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        count.append(len(backward._programs))
    assert len(set(count)) == 1
    other = network()
    weights, rest = [v.value for v in other.trainable_variables], [v.value for v in other.non_trainable_variables]

    def loss_of(weights: Any, rest: Any) -> Any:
        outputs, rest = other.stateless_call(weights, rest, x, training=True)
        return jnp.mean((outputs - x[:, :1]) ** 2), rest

    for _ in range(4):
        (_, rest), slopes = jax.value_and_grad(loss_of, has_aux=True)(weights, rest)
        weights = [w - 0.1 * g for w, g in zip(weights, slopes, strict=True)]
    for ours, theirs in zip(model.trainable_variables, weights, strict=True):
        np.testing.assert_allclose(ours.value, theirs, rtol=1e-4, atol=1e-6)


def test_two_tapes_over_one_step() -> None:
    g, d = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape() as of_g, tf.GradientTape() as of_d:
        fake = g * 0.5
        loss_g, loss_d = d * fake, d * 4.0 - d * fake
    assert float(of_g.gradient(loss_g, g)) == 1.5
    g.assign(100.0)
    assert float(of_d.gradient(loss_d, d)) == 3


def test_minimize() -> None:
    v = tf.Variable(2.0)
    optimizer = tf.keras.optimizers.SGD(0.25)
    optimizer.minimize(lambda: v * v, [v])
    assert float(v) == 1
    with tf.GradientTape() as tape:
        loss = v * v
    optimizer.minimize(loss, [v], tape=tape)
    assert float(v) == 0.5


def test_a_tape_in_what_jax_compiles() -> None:
    v = tf.Variable(3.0)

    def step(i: Any, total: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(total)
            y = v * total * total
        return i + 1, total + tape.gradient(y, total)

    # 1 -> 1 + 6 -> 7 + 42
    assert float(jax.jit(lambda x: tf.while_loop(lambda i, _: i < 2, step, (0, x))[1])(1.0)) == 49


def test_what_is_refused() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
    tape.gradient(y, v)
    with pytest.raises(RuntimeError, match="non-persistent GradientTape can only be used"):
        tape.gradient(y, v)
    with tf.GradientTape() as tape, pytest.raises(ValueError, match="watches tensors and variables"):
        tape.watch("v")
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients: 'some'"):
        tape.gradient(y, v, unconnected_gradients="some")
    with pytest.raises(RuntimeError, match="not recording"), tf.GradientTape().stop_recording():
        pass
    with tf.GradientTape() as tape, pytest.raises(ValueError, match="cannot be entered again"):
        tape.__enter__()

    @tf.custom_gradient
    def reads(x: Any) -> Any:
        return x * v, lambda dy: dy

    with tf.GradientTape(), pytest.raises(TypeError, match="must accept a keyword argument 'variables'"):
        reads(v * 1.0)


def test_nothing_is_kept_when_a_tape_ends() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
    entries = tape._eager._entries
    assert len(entries) == 1
    tape.gradient(y, v)
    assert not tape._eager._entries and not tape._eager._kept
