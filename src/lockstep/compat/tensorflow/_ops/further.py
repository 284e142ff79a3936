"""Functions of tf that few programs use: quotients, sequences, values that are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.elementwise import multiply, truediv
from lockstep.compat.tensorflow._ops.make import compute
from lockstep.compat.tensorflow._types import ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["get_static_value", "realdiv", "reverse_sequence", "scalar_mul", "truncatediv", "truncatemod"]
__all__ += ["unravel_index"]


def get_static_value(tensor: Tensor, partial: bool = False) -> Any:
    """Returns a tensor's value as an array of numpy's; `None` while it is computed by compiled code.

    Source: tf.get_static_value.
    """
    if isinstance(tensor, (Tracer, keras.KerasTensor)):
        return None
    return np.asarray(dispatch.pick(tensor)[1])


def realdiv(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """Computes quotients, of integers as floating-point numbers. Source: tf.realdiv."""
    return truediv(x, y)


def scalar_mul(scalar: Tensor, x: Tensor, name: str | None = None) -> Tensor:
    """Multiplies a tensor by one number.

    Raises:
        ArgumentError: If `scalar` has dimensions.

    Source: tf.math.scalar_mul.
    """
    if np.ndim(scalar):
        raise ArgumentError(f"scalar_mul multiplies by one number. Received one of shape {np.shape(scalar)}.")
    return multiply(scalar, x)


def truncatediv(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """Computes quotients of integers, rounded towards zero. Source: tf.truncatediv."""
    return compute(_truncate, x, y)


def truncatemod(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """Computes remainders that have the sign of x. Source: tf.truncatemod."""
    return compute(lambda xp, a, b: np.fmod(a, b) if xp is dispatch.HOST else jnp.fmod(a, b), x, y)


def _truncate(xp: Any, x: Tensor, y: Tensor) -> Any:
    # By the floor and the remainder: floating-point numbers would lose digits.
    rest = np.fmod(x, y) if xp is dispatch.HOST else jax.numpy.fmod(x, y)
    return (x - rest) // y


def unravel_index(indices: Tensor, dims: ShapeLike, name: str | None = None) -> Tensor:
    """Returns the coordinates of flat indices in a tensor of shape `dims`: `[len(dims), ...]`.

    Source: tf.unravel_index.
    """
    sizes = dispatch.to_shape(dims)

    def coordinates(xp: Any, flat: Tensor) -> Any:
        return xp.stack([part.astype(flat.dtype) for part in xp.unravel_index(flat, sizes)])

    return compute(coordinates, indices)


def reverse_sequence(
    input: Tensor, seq_lengths: Tensor, seq_axis: int | None = None, batch_axis: int | None = None, name: Any = None
) -> Tensor:
    """Reverses the first `seq_lengths` elements of each example; what follows stays where it is.

    Args:
        input: A tensor.
        seq_lengths: `[batch]`: integers.
        seq_axis: The dimension that is reversed.
        batch_axis: The dimension of examples; default: 0.
        name: Its name in a model_fn.

    Source: tf.reverse_sequence.
    """
    if seq_axis is None:
        raise ArgumentError("seq_axis says which dimension is reversed. Received none.")

    def reverse_rows(xp: Any, x: Tensor, lengths: Tensor) -> Any:
        across, along = (batch_axis or 0) % len(x.shape), seq_axis % len(x.shape)
        places = np.arange(x.shape[along])
        where = xp.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
        # The batch and the sequence where they stand in the input, all other dimensions of size 1.
        shape = [1] * len(x.shape)
        shape[across], shape[along] = x.shape[across], x.shape[along]
        where = where if across < along else where.T
        return xp.take_along_axis(x, xp.broadcast_to(where.reshape(shape), x.shape), axis=along)

    return compute(reverse_rows, input, seq_lengths)


named.record_names(globals())
