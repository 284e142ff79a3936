"""TensorFlow 1's initializers, as Keras'."""

from __future__ import annotations

from typing import Any

import keras

from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.errors import ArgumentError


def _check(dtype: Any, **others: Any) -> None:
    """Raises `ArgumentError` for what Keras' initializers are not told when they are made."""
    if not as_dtype(dtype).is_floating:
        raise ArgumentError(f"An initializer makes floating-point numbers. Received: dtype={dtype!r}.")
    wrong = {name: value for name, value in others.items() if value is not True}
    if wrong:
        raise ArgumentError(f"Initializers check shapes. Received: {wrong!r}. Leave it out.")


def zeros_initializer(dtype: Any = float32) -> Any:
    """Makes zeros. Source: tf.compat.v1.zeros_initializer."""
    return keras.initializers.Zeros()


def ones_initializer(dtype: Any = float32) -> Any:
    """Makes ones. Source: tf.compat.v1.ones_initializer."""
    return keras.initializers.Ones()


def constant_initializer(value: Any = 0, dtype: Any = float32, verify_shape: bool = True) -> Any:
    """Makes a constant: one number, or an array of the variable's shape. Source: tf.compat.v1.constant_initializer."""
    _check(float32, verify_shape=verify_shape)
    return keras.initializers.Constant(value)


def random_uniform_initializer(minval: Any = -0.05, maxval: Any = 0.05, seed: Any = None, dtype: Any = float32) -> Any:
    """Draws uniformly. Source: tf.compat.v1.random_uniform_initializer."""
    _check(dtype)
    return keras.initializers.RandomUniform(minval, maxval, seed)


def random_normal_initializer(mean: Any = 0.0, stddev: Any = 1.0, seed: Any = None, dtype: Any = float32) -> Any:
    """Draws from a normal distribution. Source: tf.compat.v1.random_normal_initializer."""
    _check(dtype)
    return keras.initializers.RandomNormal(mean, stddev, seed)


def truncated_normal_initializer(mean: Any = 0.0, stddev: Any = 1.0, seed: Any = None, dtype: Any = float32) -> Any:
    """Draws from a normal distribution cut at two deviations. Source: tf.compat.v1.truncated_normal_initializer."""
    _check(dtype)
    return keras.initializers.TruncatedNormal(mean, stddev, seed)


def glorot_uniform_initializer(seed: Any = None, dtype: Any = float32) -> Any:
    """Glorot's uniform initializer, also named Xavier. Source: tf.compat.v1.glorot_uniform_initializer."""
    _check(dtype)
    return keras.initializers.GlorotUniform(seed)


def glorot_normal_initializer(seed: Any = None, dtype: Any = float32) -> Any:
    """Glorot's normal initializer. Source: tf.compat.v1.glorot_normal_initializer."""
    _check(dtype)
    return keras.initializers.GlorotNormal(seed)


def orthogonal_initializer(gain: Any = 1.0, seed: Any = None, dtype: Any = float32) -> Any:
    """Makes an orthogonal matrix. Source: tf.compat.v1.orthogonal_initializer."""
    _check(dtype)
    return keras.initializers.Orthogonal(gain, seed)


def variance_scaling_initializer(
    scale: Any = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    seed: Any = None,
    dtype: Any = float32,
) -> Any:
    """Draws with a variance by the shape; "normal" means "truncated_normal".

    Source: tf.compat.v1.variance_scaling_initializer.
    """
    _check(dtype)
    kind = {"normal": "truncated_normal"}.get(distribution, distribution)
    return keras.initializers.VarianceScaling(scale, mode, kind, seed)
