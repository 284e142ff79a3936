"""Products, norms, and clipping by them."""

# ruff: noqa: D417

from __future__ import annotations

from typing import Any

import keras

from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._types import AxisLike, Library
from lockstep.errors import ArgumentError

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value", "einsum", "global_norm", "matmul", "matvec", "norm"]
__all__ += ["tensordot"]


def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """Multiplies matrices, the last two dimensions; each may be transposed, or adjoint, first. Source: tf.matmul."""
    xp, a, b = dispatch.pick(a, b)
    # TensorFlow's rule.
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        raise ArgumentError("A matrix is either transposed or adjoint. Received both.")
    a = _transpose(xp, a, transpose_a, adjoint_a)
    b = _transpose(xp, b, transpose_b, adjoint_b)
    return dispatch.give(xp, xp.matmul(a, b))


def _transpose(xp: Library, x: Tensor, transposed: bool, adjoint: bool) -> Any:
    turned = xp.swapaxes(x, -1, -2) if transposed or adjoint else x
    return xp.conj(turned) if adjoint else turned


def matvec(a: Tensor, b: Tensor, transpose_a: bool = False, adjoint_a: bool = False, name: str | None = None) -> Tensor:
    """Multiplies matrices and vectors, the last dimensions. Source: tf.linalg.matvec."""
    xp, a, b = dispatch.pick(a, b)
    a = _transpose(xp, a, transpose_a, adjoint_a)
    return dispatch.give(xp, xp.squeeze(xp.matmul(a, xp.expand_dims(b, -1)), -1))


def tensordot(a: Tensor, b: Tensor, axes: AxisLike, name: str | None = None) -> Tensor:
    """Sums products over the axes, of `a` and of `b`. Source: tf.tensordot."""
    xp, a, b = dispatch.pick(a, b)
    return dispatch.give(xp, xp.tensordot(a, b, axes=dispatch.to_static(axes)))


def einsum(equation: str, *inputs: Tensor, name: str | None = None) -> Tensor:
    """Sums products as the equation says. Source: tf.einsum."""
    xp, *tensors = dispatch.pick(*inputs)
    return dispatch.give(xp, xp.einsum(equation, *tensors))


def norm(
    tensor: Tensor, ord: Any = "euclidean", axis: AxisLike = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Computes norms.

    Args:
        tensor: Real or complex numbers.
        ord: "euclidean", 1, 2, infinity, any positive number, and "fro" for matrices.
        axis: One axis for vectors, two for matrices, `None` for all elements as one vector.
        keepdims: Whether the axes stay, with one element each.

    Source: tf.norm.
    """
    xp, x = dispatch.pick(tensor)
    x, axis = dispatch.to_floats(xp, x), dispatch.to_static(axis)
    # "euclidean" is the Frobenius norm of a matrix; numpy's 2 would be its largest singular value.
    kind = 2 if ord == "euclidean" and not isinstance(axis, tuple) else "fro" if ord == "euclidean" else ord
    if axis is None:
        flat = xp.reshape(x, (-1,))
        length = xp.linalg.norm(flat, ord=2 if kind == "fro" else kind)
        return dispatch.give(xp, xp.reshape(length, (1,) * len(x.shape)) if keepdims else length)
    return dispatch.give(xp, xp.linalg.norm(x, ord=kind, axis=axis, keepdims=keepdims))


def clip_by_value(t: Tensor, clip_value_min: Tensor, clip_value_max: Tensor, name: str | None = None) -> Tensor:
    """Limits elements to a range. Source: tf.clip_by_value."""
    xp, x, low, high = dispatch.pick_loose(t, clip_value_min, clip_value_max)
    if xp is dispatch.DEVICE:
        # The derivative at the limits is 1, as TensorFlow's; that of minimum and maximum would be its half.
        return xp.where(x < low, low, xp.where(x > high, high, x)).astype(x.dtype)
    return dispatch.give(xp, xp.minimum(xp.maximum(x, low), high))


def clip_by_norm(t: Tensor, clip_norm: Tensor, axes: AxisLike = None, name: str | None = None) -> Tensor:
    """Scales a tensor down so that its Euclidean norm is at most `clip_norm`. Source: tf.clip_by_norm."""
    xp, x, limit = dispatch.pick_loose(t, clip_norm)
    length = xp.sqrt(xp.sum(xp.square(x), axis=dispatch.to_static(axes), keepdims=True))
    # A norm below the limit, 0 included, gives the factor 1 without a division by it.
    return dispatch.give(xp, x * (limit / xp.maximum(length, limit)))


def global_norm(t_list: PyTree, name: str | None = None) -> Tensor:
    """Computes the Euclidean norm of all tensors of a list together; `None`s are left out.

    Source: tf.linalg.global_norm.
    """
    # Variables without a gradient have None.
    xp, tensors = dispatch.pick_list([t for t in t_list if t is not None])
    return dispatch.give(xp, xp.sqrt(sum(xp.sum(xp.square(t)) for t in tensors)))


def clip_by_global_norm(
    t_list: PyTree, clip_norm: Tensor, use_norm: Tensor = None, name: str | None = None
) -> tuple[list[Tensor], Tensor]:
    """Scales all tensors of a list so that their norm together is at most `clip_norm`.

    Returns:
        The tensors (`None`s stay), and the norm before.

    Source: tf.clip_by_global_norm.
    """
    # One factor for all tensors keeps the direction of the gradient.
    length = global_norm(t_list) if use_norm is None else use_norm
    if dispatch.library_of(length) is dispatch.HOST:
        scale = clip_norm / max(float(length), float(clip_norm))
    else:
        scale = clip_norm / keras.ops.maximum(length, clip_norm)
    scaled: list[Any] = []
    for tensor in t_list:
        xp, x, s = dispatch.pick_loose(tensor, scale)
        scaled.append(None if tensor is None else dispatch.give(xp, x * s))
    return scaled, length


named.record_names(globals())
