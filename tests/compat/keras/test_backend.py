"""Keras 2's backend functions, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import lockstep.compat.tensorflow.keras.backend as K
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep.compat.tensorflow.keras as tf_keras
from lockstep.errors import ArgumentError, UnsupportedError

X = np.random.default_rng(3).normal(size=(2, 3, 4)).astype("float32")
PICTURES = np.random.default_rng(4).normal(size=(2, 5, 6, 3)).astype("float32")


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x)
    return powers / powers.sum(-1, keepdims=True)


CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "abs": (lambda: K.abs(X), np.abs(X)),
    "all": (lambda: K.all(X, axis=1), X.all(axis=1)),
    "any": (lambda: K.any(X > 1, axis=-1, keepdims=True), (X > 1).any(-1, keepdims=True)),
    "arange": (lambda: K.arange(5), np.arange(5)),
    "argmax": (lambda: K.argmax(X), X.argmax(-1)),
    "argmin": (lambda: K.argmin(X, axis=1), X.argmin(1)),
    "batch_flatten": (lambda: K.batch_flatten(X), X.reshape(2, -1)),
    "bias_add": (lambda: K.bias_add(X, X[0, 0]), X + X[0, 0]),
    "bias_add of places": (lambda: K.bias_add(X, X[0]), X + X[:1]),
    "bias_add in front": (
        lambda: K.bias_add(PICTURES, np.arange(5.0, dtype="float32"), "channels_first"),
        PICTURES + np.arange(5.0, dtype="float32")[:, None, None],
    ),
    "batch_normalization": (
        lambda: K.batch_normalization(X, X[0, 0], X[1, 1] ** 2, X[0, 1], X[0, 2]),
        (X - X[0, 0]) / np.sqrt(X[1, 1] ** 2 + 1e-3) * X[0, 2] + X[0, 1],
    ),
    "binary_crossentropy": (
        lambda: K.binary_crossentropy(np.asarray([0.0, 1.0]), np.asarray([0.25, 0.25])),
        -np.log([0.75, 0.25]),
    ),
    "cast": (lambda: K.cast(X, "int32"), X.astype("int32")),
    "cast_to_floatx": (lambda: K.cast_to_floatx([1, 2]), np.asarray([1, 2], "float32")),
    "categorical_crossentropy": (
        lambda: K.categorical_crossentropy(np.eye(4, dtype="float32")[[1, 2, 0]], softmax(X[0])),
        -np.log(softmax(X[0])[[0, 1, 2], [1, 2, 0]]),
    ),
    "clip": (lambda: K.clip(X, -0.5, 0.5), X.clip(-0.5, 0.5)),
    "clip one side": (lambda: K.clip(X, None, 0.5), X.clip(None, 0.5)),
    "concatenate": (lambda: K.concatenate([X, X]), np.concatenate([X, X], -1)),
    "constant": (lambda: K.constant(2, shape=(2, 2)), np.full((2, 2), 2.0, "float32")),
    "conv2d": (lambda: K.conv2d(PICTURES, np.ones((1, 1, 3, 1))), PICTURES.sum(-1, keepdims=True)),
    "conv1d": (
        lambda: K.conv1d(X, np.eye(4, dtype="float32")[None].repeat(2, 0), padding="causal"),
        X + np.pad(X, [(0, 0), (1, 0), (0, 0)])[:, :-1],
    ),
    "cumsum": (lambda: K.cumsum(X), X.cumsum(0)),
    "cumprod": (lambda: K.cumprod(X, axis=-1), X.cumprod(-1)),
    "dot": (lambda: K.dot(X, X[0].T), X @ X[0].T),
    "elu": (lambda: K.elu(X, 0.5), np.where(X > 0, X, 0.5 * (np.exp(X) - 1))),
    "equal": (lambda: K.equal(X, X), np.ones_like(X, bool)),
    "eval": (lambda: K.eval(K.variable(X)), X),
    "exp": (lambda: K.exp(X), np.exp(X)),
    "expand_dims": (lambda: K.expand_dims(X), X[..., None]),
    "eye": (lambda: K.eye(3), np.eye(3, dtype="float32")),
    "flatten": (lambda: K.flatten(X), X.ravel()),
    "gather": (lambda: K.gather(X, [1, 0]), X[[1, 0]]),
    "hard_sigmoid": (lambda: K.hard_sigmoid(X * 4), (0.2 * X * 4 + 0.5).clip(0, 1)),
    "in_top_k": (lambda: K.in_top_k(X[0], np.asarray([0, 1, 2]), 4), np.ones(3, bool)),
    "l2_normalize": (lambda: K.l2_normalize(X, -1), X / np.linalg.norm(X, axis=-1, keepdims=True)),
    "map_fn": (lambda: K.map_fn(lambda x: x.sum(), X), X.sum((1, 2))),
    "maximum": (lambda: K.maximum(X, 0.0), X.clip(0)),
    "mean": (lambda: K.mean(X > 0), (X > 0).mean(dtype="float32")),
    "one_hot": (lambda: K.one_hot(np.asarray([1, 0]), 3), np.eye(3, dtype="float32")[[1, 0]]),
    "ones_like": (lambda: K.ones_like(X), np.ones_like(X)),
    "permute_dimensions": (lambda: K.permute_dimensions(X, (2, 0, 1)), X.transpose(2, 0, 1)),
    "pool2d": (lambda: K.pool2d(PICTURES, (5, 6), pool_mode="avg"), PICTURES.mean((1, 2), keepdims=True)),
    "pow": (lambda: K.pow(X, 2), X**2),
    "prod": (lambda: K.prod(X, axis=0), X.prod(0)),
    "relu": (lambda: K.relu(X, alpha=0.1, max_value=1.0), np.where(X > 0, X, 0.1 * X).clip(None, 1)),
    "repeat": (lambda: K.repeat(X[0], 2), X[0][:, None].repeat(2, 1)),
    "repeat_elements": (lambda: K.repeat_elements(X, 2, 1), X.repeat(2, 1)),
    "resize_images": (
        lambda: K.resize_images(PICTURES, 2, 3, "channels_last"),
        PICTURES.repeat(2, 1).repeat(3, 2),
    ),
    "reverse": (lambda: K.reverse(X, 1), X[:, ::-1]),
    "sigmoid": (lambda: K.sigmoid(X), 1 / (1 + np.exp(-X))),
    "softmax": (lambda: K.softmax(X), softmax(X)),
    "sparse_categorical_crossentropy": (
        lambda: K.sparse_categorical_crossentropy(np.asarray([1, 2, 0]), X[0], from_logits=True),
        -np.log(softmax(X[0])[[0, 1, 2], [1, 2, 0]]),
    ),
    "spatial_2d_padding": (
        lambda: K.spatial_2d_padding(PICTURES, ((1, 0), (0, 2))),
        np.pad(PICTURES, [(0, 0), (1, 0), (0, 2), (0, 0)]),
    ),
    "sqrt": (lambda: K.sqrt(np.asarray([-1.0, 4.0], "float32")), [0, 2]),
    "squeeze": (lambda: K.squeeze(X[:1], 0), X[0]),
    "std": (lambda: K.std(X, axis=0), X.std(0)),
    "switch": (lambda: K.switch(X[:, 0] > 0, X[:, 0], -X[:, 0]), np.abs(X[:, 0])),
    "switch of rows": (
        lambda: K.switch(X[:, :, 0] > 0, X, lambda: 0 * X),
        np.where(X[:, :, :1] > 0, X, 0),
    ),
    "switch of functions": (lambda: K.switch(np.asarray(True), lambda: X, lambda: 2 * X), X),
    "sum": (lambda: K.sum(X, axis=-1), X.sum(-1)),
    "temporal_padding": (lambda: K.temporal_padding(X, (2, 1)), np.pad(X, [(0, 0), (2, 1), (0, 0)])),
    "tile": (lambda: K.tile(X[0, 0], 2), np.tile(X[0, 0], 2)),
    "transpose": (lambda: K.transpose(X[0]), X[0].T),
    "var": (lambda: K.var(X), X.var()),
    "zeros": (lambda: K.zeros((2, 3)), np.zeros((2, 3), "float32")),
    "in_train_phase": (lambda: K.in_train_phase(X, 0 * X, training=True), X),
    "in_test_phase": (lambda: K.in_test_phase(lambda: X, 0 * X, training=True), 0 * X),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function(name: str) -> None:
    compute, expected = CASES[name]
    said = np.asarray(compute())
    assert said.shape == np.shape(expected)
    np.testing.assert_allclose(said, expected, rtol=2e-5, atol=1e-5)


def _axes(rank: int) -> st.SearchStrategy[int]:
    return st.integers(1, rank - 1)


@st.composite
def products(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    sizes = st.integers(1, 4)
    x = draw(st.lists(sizes, min_size=2, max_size=4))
    y = draw(st.lists(sizes, min_size=2, max_size=4))
    axes = draw(_axes(len(x))), draw(_axes(len(y)))
    y[0], y[axes[1]] = x[0], x[axes[0]]
    numbers = np.random.default_rng(draw(st.integers(0, 9)))
    return numbers.normal(size=x).astype("float32"), numbers.normal(size=y).astype("float32"), axes


@pytest.mark.slow
@settings(max_examples=15)
@given(products())
def test_batch_dot(case: tuple[np.ndarray, np.ndarray, tuple[int, int]]) -> None:
    x, y, (one, other) = case
    expected = np.stack([np.tensordot(a, b, (one - 1, other - 1)) for a, b in zip(x, y, strict=True)])
    said = np.asarray(K.batch_dot(x, y, (one, other)))
    np.testing.assert_allclose(said, expected if expected.ndim > 1 else expected[:, None], rtol=1e-4, atol=1e-5)


def test_batch_dot_chooses_axes() -> None:
    np.testing.assert_allclose(K.batch_dot(X, X.transpose(0, 2, 1)), X @ X.transpose(0, 2, 1), rtol=1e-5)


def test_shapes_and_types() -> None:
    inputs = tf_keras.Input((3,))
    assert K.int_shape(inputs) == (None, 3)
    assert (K.ndim(X), K.dtype(X), K.count_params(X), K.int_shape(X)) == (3, "float32", 24, (2, 3, 4))
    assert K.int_shape(3) is None
    assert tuple(K.shape(X)) == (2, 3, 4)
    assert K.is_keras_tensor(inputs)
    assert not K.is_sparse(X)
    assert (K.floatx(), K.image_data_format(), K.backend()) == ("float32", "channels_last", "jax")
    assert K.epsilon() == keras.config.epsilon()


def test_variables() -> None:
    x = K.variable([1.0, 2.0], name="x")
    K.set_value(x, [3, 4])
    K.update_add(x, np.ones(2))
    K.update_sub(x, [2, 2])
    assert np.array_equal(K.get_value(x), [2, 3])
    K.moving_average_update(x, np.zeros(2), 0.5)
    assert np.array_equal(K.batch_get_value([x])[0], [1, 1.5])
    K.batch_set_value([(x, [0.0, 0.0])])
    K.update(x, [7.0, 7.0])
    assert np.array_equal(K.get_value(x), [7, 7])
    assert K.get_value(2.5) == 2.5
    assert float(K.get_value(K.variable(2.0))) == 2.0


@pytest.mark.slow
def test_random_values() -> None:
    normal = np.asarray(K.random_normal((1000,), 3.0, 0.5, seed=1))
    assert abs(normal.mean() - 3) < 0.1
    uniform = np.asarray(K.random_uniform((1000,), 2.0, 3.0, seed=1))
    assert 2 <= uniform.min() <= uniform.max() < 3
    assert abs(np.asarray(K.random_bernoulli((1000,), 0.25, seed=1)).mean() - 0.25) < 0.1
    assert np.abs(np.asarray(K.truncated_normal((1000,), seed=1))).max() <= 2
    assert set(np.unique(K.dropout(np.ones(100, "float32"), 0.5, seed=1))) == {0.0, 2.0}
    assert K.random_normal_variable((2, 3), 0, 1).shape == K.random_uniform_variable((2, 3), 0, 1).shape


@pytest.mark.slow
def test_a_function_of_a_model() -> None:
    model = tf_keras.Sequential([tf_keras.layers.Dense(3, input_shape=(4,)), tf_keras.layers.Dense(2)])
    outputs = K.function([model.input], [model.layers[0].output, model.output])([X[0]])
    np.testing.assert_allclose(outputs[1], model.predict(X[0], verbose=0), rtol=1e-5)
    assert outputs[0].shape == (3, 3)
    assert K.function(model.input, model.output)(X[0]).shape == (3, 2)
    with pytest.raises(ArgumentError, match="updates"):
        K.function([model.input], [model.output], updates=[1])


def test_a_placeholder_is_an_input() -> None:
    assert K.placeholder((None, 3)).shape == (None, 3)
    assert K.placeholder(ndim=2).shape == (None, None)
    with pytest.raises(ArgumentError, match="placeholder"):
        K.placeholder()


@pytest.mark.parametrize(
    "name", ["get_session", "set_session", "learning_phase", "set_learning_phase", "learning_phase_scope", "gradients"]
)
def test_what_belonged_to_graphs(name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        getattr(K, name)()


def test_a_phase_must_be_told() -> None:
    with pytest.raises(UnsupportedError, match="training=True"):
        K.in_train_phase(1, 2)


def test_a_session_is_cleared() -> None:
    K.clear_session()
    assert tf_keras.layers.Dense(1).name == "dense"
