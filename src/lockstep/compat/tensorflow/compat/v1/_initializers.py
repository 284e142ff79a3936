"""TensorFlow 1's initializers, made of Keras'."""

from __future__ import annotations

from typing import Any

import keras

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._types import Argument, DTypeLike, Seed
from lockstep.errors import ArgumentError

__all__ = ["constant_initializer", "glorot_normal_initializer", "glorot_uniform_initializer", "ones_initializer"]
__all__ += ["orthogonal_initializer", "random_normal_initializer", "random_uniform_initializer"]
__all__ += ["truncated_normal_initializer", "variance_scaling_initializer", "zeros_initializer"]


def _check(dtype: DTypeLike, **others: Argument) -> None:
    """Raises `ArgumentError` for options that Keras' initializers do not have."""
    if not as_dtype(dtype).is_floating:
        raise ArgumentError(f"An initializer makes floating-point numbers. Received: dtype={dtype!r}.")
    # verify_shape=False would let a constant of another shape pass.
    wrong = {name: value for name, value in others.items() if value is not True}
    if wrong:
        raise ArgumentError(f"Initializers check shapes. Received: {wrong!r}. Leave it out.")


def zeros_initializer(dtype: DTypeLike = float32) -> Any:
    """Makes zeros. Source: tf.compat.v1.zeros_initializer."""
    return keras.initializers.Zeros()


def ones_initializer(dtype: DTypeLike = float32) -> Any:
    """Makes ones. Source: tf.compat.v1.ones_initializer."""
    return keras.initializers.Ones()


def constant_initializer(value: Tensor = 0, dtype: DTypeLike = float32, verify_shape: bool = True) -> Any:
    """Makes a constant: one number, or an array of the variable's shape. Source: tf.compat.v1.constant_initializer."""
    _check(float32, verify_shape=verify_shape)
    return keras.initializers.Constant(value)


def random_uniform_initializer(
    minval: Tensor = -0.05, maxval: Tensor = 0.05, seed: Seed = None, dtype: DTypeLike = float32
) -> Any:
    """Draws uniformly. Source: tf.compat.v1.random_uniform_initializer."""
    _check(dtype)
    return keras.initializers.RandomUniform(minval, maxval, seed)


def random_normal_initializer(
    mean: Tensor = 0.0, stddev: Tensor = 1.0, seed: Seed = None, dtype: DTypeLike = float32
) -> Any:
    """Draws from a normal distribution. Source: tf.compat.v1.random_normal_initializer."""
    _check(dtype)
    return keras.initializers.RandomNormal(mean, stddev, seed)


def truncated_normal_initializer(
    mean: Tensor = 0.0, stddev: Tensor = 1.0, seed: Seed = None, dtype: DTypeLike = float32
) -> Any:
    """Draws from a normal distribution cut at two deviations. Source: tf.compat.v1.truncated_normal_initializer."""
    _check(dtype)
    return keras.initializers.TruncatedNormal(mean, stddev, seed)


def glorot_uniform_initializer(seed: Seed = None, dtype: DTypeLike = float32) -> Any:
    """Draws uniformly by Glorot's rule, also named Xavier's. Source: tf.compat.v1.glorot_uniform_initializer."""
    _check(dtype)
    return keras.initializers.GlorotUniform(seed)


def glorot_normal_initializer(seed: Seed = None, dtype: DTypeLike = float32) -> Any:
    """Draws from a normal distribution by Glorot's rule. Source: tf.compat.v1.glorot_normal_initializer."""
    _check(dtype)
    return keras.initializers.GlorotNormal(seed)


def orthogonal_initializer(gain: Tensor = 1.0, seed: Seed = None, dtype: DTypeLike = float32) -> Any:
    """Makes an orthogonal matrix. Source: tf.compat.v1.orthogonal_initializer."""
    _check(dtype)
    return keras.initializers.Orthogonal(gain, seed)


def variance_scaling_initializer(
    scale: Tensor = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    seed: Seed = None,
    dtype: DTypeLike = float32,
) -> Any:
    """Draws with a variance by the shape; "normal" means "truncated_normal".

    Source: tf.compat.v1.variance_scaling_initializer.
    """
    _check(dtype)
    # TensorFlow 1's "normal" was truncated, which TensorFlow 2 says in the name.
    kind = {"normal": "truncated_normal"}.get(distribution, distribution)
    return keras.initializers.VarianceScaling(scale, mode, kind, seed)
