"""Variables, constants and random values of Keras 2's backend."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from lockstep._types import Tensor
from lockstep.compat.tensorflow._types import DTypeLike, Initializer, Seed, ShapeLike, SizeLike

__all__ = ["batch_get_value", "batch_set_value", "constant", "count_params", "dropout", "eval", "eye", "get_value"]
__all__ += ["moving_average_update", "ones", "ones_like", "random_bernoulli", "random_binomial", "random_normal"]
__all__ += ["random_normal_variable", "random_uniform", "random_uniform_variable", "set_value", "truncated_normal"]
__all__ += ["update", "update_add", "update_sub", "variable", "zeros", "zeros_like"]


def variable(
    value: Tensor, dtype: DTypeLike = None, name: str | None = None, constraint: Initializer = None
) -> keras.Variable:
    """Returns a variable, of the default type unless another is given."""
    result = keras.Variable(np.asarray(value), dtype=dtype or keras.config.floatx(), name=name)
    result.constraint = constraint
    return result


def constant(value: Tensor, dtype: DTypeLike = None, shape: ShapeLike = None, name: str | None = None) -> Any:
    """Returns an array, of the default type unless another is given."""
    array = ops.convert_to_tensor(value, dtype=dtype or keras.config.floatx())
    return array if shape is None else ops.broadcast_to(array, shape)


def zeros(shape: ShapeLike, dtype: DTypeLike = None, name: str | None = None) -> Any:
    """Returns zeros."""
    return ops.zeros(shape, dtype=dtype)


def ones(shape: ShapeLike, dtype: DTypeLike = None, name: str | None = None) -> Any:
    """Returns ones."""
    return ops.ones(shape, dtype=dtype)


def eye(size: SizeLike, dtype: DTypeLike = None, name: str | None = None) -> Any:
    """Returns an identity matrix."""
    # Keras 2 takes a shape of two, too.
    rows, columns = size if isinstance(size, (tuple, list)) else (size, size)
    return ops.eye(rows, columns, dtype=dtype)


def zeros_like(x: Tensor, dtype: DTypeLike = None, name: str | None = None) -> Any:
    """Returns zeros of the shape of `x`."""
    return ops.zeros_like(x, dtype=dtype)


def ones_like(x: Tensor, dtype: DTypeLike = None, name: str | None = None) -> Any:
    """Returns ones of the shape of `x`."""
    return ops.ones_like(x, dtype=dtype)


def get_value(x: Tensor) -> Any:
    """Returns the value of a variable or an array as numpy's; a number as it is."""
    # [()] makes a scalar of an array without dimensions, as Keras 2 returned.
    return x if isinstance(x, (int, float)) else np.asarray(ops.convert_to_numpy(x))[()]


eval = get_value


def set_value(x: Tensor, value: Tensor) -> None:
    """Gives a variable a value."""
    # Keras converts the type; a list becomes an array here.
    x.assign(np.asarray(value))


def batch_get_value(tensors: Tensor) -> list[Any]:
    """Returns the values of several variables."""
    return [get_value(x) for x in tensors]


def batch_set_value(tuples: Any) -> None:
    """Gives several variables values."""
    for x, value in tuples:
        set_value(x, value)


def count_params(x: Tensor) -> int:
    """Returns how many values `x` has."""
    return math.prod(x.shape)


def update(x: Tensor, new_x: Tensor) -> Any:
    """Gives a variable a value."""
    return x.assign(new_x)


def update_add(x: Tensor, increment: Tensor) -> Any:
    """Adds to a variable."""
    return x.assign_add(increment)


def update_sub(x: Tensor, decrement: Tensor) -> Any:
    """Subtracts from a variable."""
    return x.assign_sub(decrement)


def moving_average_update(x: Tensor, value: Tensor, momentum: float) -> Any:
    """Moves a variable towards a value."""
    # As Keras 2 under TensorFlow 2, without zero debias.
    return x.assign(x * momentum + value * (1 - momentum))


def random_normal(
    shape: ShapeLike, mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike = None, seed: Seed = None
) -> Any:
    """Returns normal random values."""
    return keras.random.normal(shape, mean, stddev, dtype=dtype, seed=seed)


def random_uniform(
    shape: ShapeLike, minval: Tensor = 0.0, maxval: Tensor = 1.0, dtype: DTypeLike = None, seed: Seed = None
) -> Any:
    """Returns uniform random values."""
    return keras.random.uniform(shape, minval, maxval, dtype=dtype, seed=seed)


def random_bernoulli(shape: ShapeLike, p: float = 0.0, dtype: DTypeLike = None, seed: Seed = None) -> Any:
    """Returns ones with a probability, else zeros."""
    # keras.random.binomial needs counts; one trial is a comparison.
    drawn = keras.random.uniform(shape, seed=seed)
    return ops.cast(ops.less_equal(drawn, p), dtype or keras.config.floatx())


# Keras 2's older name.
random_binomial = random_bernoulli


def truncated_normal(
    shape: ShapeLike, mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike = None, seed: Seed = None
) -> Any:
    """Returns normal random values within two standard deviations."""
    return keras.random.truncated_normal(shape, mean, stddev, dtype=dtype, seed=seed)


def random_normal_variable(
    shape: ShapeLike, mean: float, scale: float, dtype: DTypeLike = None, name: str | None = None, seed: Seed = None
) -> keras.Variable:
    """Returns a variable of normal random values."""
    return variable(random_normal(shape, mean, scale, dtype, seed), dtype, name)


def random_uniform_variable(
    shape: ShapeLike, low: float, high: float, dtype: DTypeLike = None, name: str | None = None, seed: Seed = None
) -> keras.Variable:
    """Returns a variable of uniform random values."""
    return variable(random_uniform(shape, low, high, dtype, seed), dtype, name)


def dropout(x: Tensor, level: float, noise_shape: ShapeLike = None, seed: Seed = None) -> Any:
    """Sets a part of the values to zero, and makes the others larger in proportion."""
    return keras.random.dropout(x, level, noise_shape=noise_shape, seed=seed)
