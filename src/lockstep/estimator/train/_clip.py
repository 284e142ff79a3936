"""Clipping of values and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.errors import ArgumentError


def clip_by_value(
    t: Tensor, clip_value_min: float | Tensor, clip_value_max: float | Tensor, name: str | None = None
) -> jax.Array:
    """Limits each element to a range.

    Args:
        t: An array.
        clip_value_min: The minimum, or an array of minima whose shape broadcasts to that of `t`.
        clip_value_max: The maximum, or an array of maxima, likewise.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.clip_by_value.
    """
    array = jnp.asarray(t)
    # The maximum last: where limits are crossed, the minimum wins, as in tf.clip_by_value.
    clipped = jnp.maximum(jnp.minimum(array, clip_value_max), clip_value_min)
    if clipped.shape != array.shape:
        raise ArgumentError(
            f"Limits must broadcast to the array. Received: an array of shape {array.shape}, and limits that make it "
            f"{clipped.shape}."
        )
    return clipped.astype(array.dtype)


def clip_by_norm(
    t: Tensor, clip_norm: float | Tensor, axes: int | Sequence[int] | None = None, name: str | None = None
) -> jax.Array:
    """Scales an array down so that its Euclidean norm is at most `clip_norm`.

    Args:
        t: An array of floats.
        clip_norm: The limit.
        axes: An axis, or several, along which norms are taken; `None` for all together.
        name: Names the operation in TensorFlow's graphs.

    Source: tf.clip_by_norm.
    """
    array = jnp.asarray(t)
    along = tuple(axes) if isinstance(axes, (list, tuple)) else axes
    squares = jnp.sum(array * array, axis=along, keepdims=True)
    # The gradient of sqrt at zero is infinite; times zero it would make the gradients of all other elements NaN.
    norm = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), squares)
    return (array * clip_norm / jnp.maximum(norm, clip_norm)).astype(array.dtype)


def global_norm(t_list: Sequence[Tensor | None], name: str | None = None) -> jax.Array:
    """Returns the Euclidean norm of the concatenation of arrays, without the `None`s.

    Args:
        t_list: Arrays of floats, or `None`.
        name: Names the operation in TensorFlow's graphs.

    Raises:
        ArgumentError: If it is not a list with at least one array.

    Source: tf.linalg.global_norm.
    """
    arrays = [jnp.asarray(t) for t in _to_list(t_list) if t is not None]
    if not arrays:
        raise ArgumentError(f"A norm needs at least one array. Received: {t_list!r}.")
    return jnp.sqrt(sum((jnp.sum(a * a) for a in arrays[1:]), jnp.sum(arrays[0] * arrays[0])))


def clip_by_global_norm(
    t_list: Sequence[Tensor | None], clip_norm: float | Tensor, use_norm: Tensor | None = None, name: str | None = None
) -> tuple[list[Tensor], jax.Array]:
    """Scales arrays down so that their global norm is at most `clip_norm`.

    Args:
        t_list: Arrays of floats, or `None`, which is kept.
        clip_norm: The limit.
        use_norm: The global norm, if it is known already.
        name: Names the operation in TensorFlow's graphs.

    Returns:
        The scaled arrays, and the global norm before. If that is not finite, all arrays are NaN, as in TensorFlow.

    Raises:
        ArgumentError: If `t_list` is not a list with at least one array.

    Source: tf.clip_by_global_norm.
    """
    arrays = _to_list(t_list)
    # `use_norm` also serves gradients that a program has clipped in parts: TensorFlow does not check it.
    norm = global_norm(arrays) if use_norm is None else jnp.asarray(use_norm)
    # `norm - norm` is NaN for an infinite norm, where the minimum alone would give 0 and hide it.
    scale = clip_norm * jnp.minimum(1 / norm, jnp.ones((), norm.dtype) / clip_norm) + (norm - norm)
    return [None if a is None else jnp.asarray(a) * scale.astype(jnp.asarray(a).dtype) for a in arrays], norm


def _to_list(arrays: Any) -> list[Tensor | None]:
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Sequence):
        raise ArgumentError(f"Arrays are given as a list or a tuple. Received: {type(arrays).__name__}.")
    return list(arrays)
