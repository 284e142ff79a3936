"""Initial values of variables made in a scope: Keras' own, to the bit, without a program for each shape."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lockstep as ls
from lockstep._engine.keras.initial_values import initial_values

_of = keras.initializers
_RANDOM: list[Callable[[Any], Any]] = [
    lambda seed: _of.GlorotUniform(seed),
    lambda seed: _of.GlorotNormal(seed),
    lambda seed: _of.HeNormal(seed),
    lambda seed: _of.LecunUniform(seed),
    lambda seed: _of.RandomUniform(-0.05, 0.05, seed),
    lambda seed: _of.RandomUniform(0, 3.3, seed),
    lambda seed: _of.RandomNormal(0.3, 0.7, seed),
    lambda seed: _of.TruncatedNormal(-0.1, 0.3, seed),
    lambda seed: _of.VarianceScaling(2.0, "fan_out", "untruncated_normal", seed),
    lambda seed: _of.VarianceScaling(0.5, "fan_avg", "uniform", seed),
]


@pytest.fixture(scope="module", autouse=True)
def newly_compiled() -> None:
    """Forgets programs that other tests have had compiled without optimizations: they round otherwise."""
    jax.clear_caches()


def same_bits(ours: Any, theirs: Any) -> bool:
    """Returns whether two arrays have the same shape, dtype and bits."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def _check(make: Callable[[Any], Any], seed: int, shape: Sequence[int], is_wide: bool = False) -> None:
    with jax.enable_x64(is_wide):
        dtype = "float64" if is_wide else "float32"
        assert same_bits(initial_values(make(seed), tuple(shape), dtype), make(seed)(tuple(shape), dtype))


# Keras compiles a program for each.
@pytest.mark.slow
@given(st.sampled_from(_RANDOM), st.integers(0, (1 << 32) - 1), st.lists(st.integers(1, 12), max_size=5), st.booleans())
@example(_RANDOM[1], 8, [3, 3, 64, 64], True)
def test_random_values(make: Callable[[Any], Any], seed: int, shape: list[int], is_wide: bool) -> None:
    _check(make, seed, shape, is_wide)


@pytest.mark.parametrize(
    ("make", "shape"),
    [(_RANDOM[0], (70_001,)), (_RANDOM[1], (3, 3, 5, 8)), (_RANDOM[6], (7, 11))],
    ids=["uniform", "truncated", "normal"],
)
def test_values_of_each_distribution(make: Callable[[Any], Any], shape: Sequence[int]) -> None:
    _check(make, 7, shape)


@pytest.mark.parametrize("make", [_of.Zeros, _of.Ones])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_constant_values(make: Any, dtype: str, shape: tuple[int, ...]) -> None:
    assert same_bits(initial_values(make(), shape, dtype), make()(shape, dtype))


def test_a_seed_generator_goes_on_as_with_keras() -> None:
    ours, theirs = (_of.GlorotUniform(keras.random.SeedGenerator(3)) for _ in range(2))
    for _ in range(3):
        assert same_bits(initial_values(ours, (4, 5), "float32"), theirs((4, 5), "float32"))


class _Own(_of.GlorotUniform):
    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return super().__call__(shape, dtype) + 1


@pytest.mark.parametrize(
    ("initializer", "dtype"),
    [
        (_Own(1), "float32"),
        (_of.Orthogonal(seed=1), "float32"),
        (_of.Constant(2.0), "float32"),
        (_of.GlorotUniform(1), "bfloat16"),
        (_of.GlorotUniform(1), "float64"),  # which jax has not, unless it is told to
        (lambda shape, dtype: np.ones(shape, dtype), "float32"),
    ],
)
def test_other_initializers_are_called(initializer: Any, dtype: str) -> None:
    assert initial_values(initializer, (4, 4), dtype) is None


def _model() -> keras.Model:
    layers = [keras.layers.Dense(units, "relu") for units in (5, 6, 7)]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.BatchNormalization(), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    return model


def test_a_model_has_the_weights_of_plain_keras() -> None:
    keras.utils.set_random_seed(5)
    plain = _model()
    keras.utils.set_random_seed(5)
    with ls.distribute.MirroredStrategy(["cpu:0"]).scope():
        ours = _model()
    for one, other in zip(ours.weights, plain.weights, strict=True):
        assert same_bits(one, other) and one.shape == other.shape


def test_no_program_is_compiled_for_a_shape(caplog: pytest.LogCaptureFixture) -> None:
    strategy = ls.distribute.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        keras.layers.Dense(5).build((4,))
    with jax.log_compiles(), caplog.at_level(logging.WARNING), strategy.scope():
        layer = keras.layers.Dense(13)
        layer.build((11,))
        keras.optimizers.Adam().build(layer.trainable_variables)
    assert [record.message for record in caplog.records if "XLA compilation" in record.message] == []


def test_variables_in_a_traced_function_are_keras_own() -> None:
    def traced(x: jax.Array) -> jax.Array:
        assert initial_values(_of.GlorotUniform(1), (2, 2), "float32") is None
        return x

    jax.jit(traced)(1.0)


def test_a_step_overwrites_only_its_own_variables() -> None:
    """Donates the memory of a model's variables: what was handed to jax must be nobody else's."""
    with ls.distribute.MirroredStrategy(["cpu:0"]).scope():
        zeros = [keras.Variable("zeros", (5,)) for _ in range(3)]
        model = _model()
        examples = np.random.default_rng(0).random((8, 4), np.float32)
        model.fit(examples, examples[:, :3], batch_size=4, verbose=0)
    assert model.layers[0].bias.shape == (5,) and np.any(model.layers[0].bias)
    assert not any(np.any(each) for each in zeros)
