"""Labels, predictions and weights, brought to the same shape by TensorFlow's rules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import keras

from lockstep._text import is_text
from lockstep._types import Tensor
from lockstep.errors import ArgumentError


def to_array(value: Tensor, argument: str) -> jax.Array:
    """Converts an argument to an array.

    Raises:
        ArgumentError: If it is text, or `None`.
    """
    if value is None or is_text(value) or isinstance(value, (str, bytes)):
        raise ArgumentError(
            f"{argument} must be numbers. Received: {value!r}. Text becomes numbers by a vocabulary, `text.ids(...)`."
        )
    return jnp.asarray(value.value if isinstance(value, keras.Variable) else value)


def align(labels: Tensor, predictions: Tensor, weights: Tensor | None) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Brings labels, predictions and weights to the same rank.

    Where labels and predictions differ by a last dimension of size 1, it goes; weights of one dimension less get one of
    size 1. These are the rules of TensorFlow's `remove_squeezable_dimensions`.

    Raises:
        ArgumentError: If labels and predictions then differ in shape.
    """
    labels, predictions = squeeze_last(to_array(labels, "labels"), to_array(predictions, "predictions"))
    if labels.shape != predictions.shape:
        raise ArgumentError(
            f"Labels and predictions have the same shape. Received: labels of shape {labels.shape}, predictions of "
            f"shape {predictions.shape}."
        )
    return labels, predictions, align_rank(weights, predictions)


def squeeze_last(labels: jax.Array, predictions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Removes the last dimension of the array that has one more than the other, if its size is 1."""
    if predictions.ndim == labels.ndim + 1 and predictions.shape[-1] == 1:
        return labels, predictions[..., 0]
    if labels.ndim == predictions.ndim + 1 and labels.shape[-1] == 1:
        return labels[..., 0], predictions
    return labels, predictions


def align_rank(weights: Tensor | None, values: jax.Array) -> jax.Array | None:
    """Returns weights with as many dimensions as `values`, if they have one more or one less; `None` for `None`.

    Raises:
        ArgumentError: If the extra dimension is not of size 1.
    """
    if weights is None:
        return None
    array = to_array(weights, "weights")
    if array.ndim and array.ndim == values.ndim - 1:
        return array[..., None]
    if array.ndim != values.ndim + 1:
        return array
    if array.shape[-1] != 1:
        raise _not_broadcastable(array, values)
    return array[..., 0]


def broadcast_weights(weights: jax.Array, values: jax.Array) -> jax.Array:
    """Broadcasts weights to the shape of `values`, as float32.

    Raises:
        ArgumentError: If they are neither one number, nor of the same rank with each size 1 or the same.
    """
    # Stricter than numpy: TensorFlow broadcasts weights along dimensions of size 1 only, and never adds dimensions.
    fits = weights.ndim == values.ndim and all(w in (1, v) for w, v in zip(weights.shape, values.shape, strict=True))
    if weights.ndim and not fits:
        raise _not_broadcastable(weights, values)
    return jnp.broadcast_to(weights.astype(jnp.float32), values.shape)


def _not_broadcastable(weights: jax.Array, values: jax.Array) -> ArgumentError:
    return ArgumentError(
        "Weights are one number, or an array of the values' rank in which each size is 1 or that of the values. "
        f"Received: weights of shape {weights.shape}, values of shape {values.shape}."
    )


def nan_unless(condition: jax.Array, sums: jax.Array) -> jax.Array:
    """Returns `sums`, or NaN where `condition` is false.

    TensorFlow stops with an assertion at run time; a compiled step cannot, and NaN stays visible in every later sum.
    """
    return jnp.where(condition, sums, jnp.nan)
