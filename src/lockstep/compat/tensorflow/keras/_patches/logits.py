"""Crossentropies that find the logits behind a softmax or a sigmoid, as Keras 2's do.

Keras 2 computes a crossentropy of probabilities from the logits that they were made of, whatever `from_logits` says:
`activations.softmax` and `activations.sigmoid` leave them at their result, and in compiled code the operation that made
the result is known. Without it a last layer of softmax with `from_logits=True` would pass through softmax twice, and
probabilities near zero would be clipped, with their gradients.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
from keras.src.backend.jax import nn as keras_nn

from lockstep._types import Tensor
from lockstep.compat.tensorflow._logits import find, remember
from lockstep.compat.tensorflow._ops.activations import derivative_of_distributions
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import is_called_by_us

_ACTIVATIONS = "keras.src.activations.activations"
# Keras' frames between the function that computes and `activations.softmax`.
_DEPTH = 4


def _is_asked_by_activation() -> bool:
    """Returns whether a function of `keras.activations` is calling."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    for _ in range(_DEPTH):
        if frame.f_globals.get("__name__") == _ACTIVATIONS:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def _record(name: str, op: str) -> None:
    """Lets a function of Keras' backend remember the logits of its results."""
    original: Callable[..., Any] = getattr(keras_nn, name)

    @functools.wraps(original)
    def function(x: Tensor, *args: Argument, **kwargs: Argument) -> Any:
        result = original(x, *args, **kwargs)
        axis = kwargs.get("axis", args[0] if args else -1)
        by_activation = _is_asked_by_activation()
        # TensorFlow's softmax along another axis ends in a transposition, behind which nothing is found.
        if by_activation or axis in (-1, len(x.shape) - 1):
            remember(op, result, x, by_activation)
        return result

    setattr(keras_nn, name, function)


def _use_logits(
    name: str,
    op: str,
    of_probabilities: Callable[..., Any] | None = None,
    of_logits: Callable[..., Any] | None = None,
) -> None:
    """Lets a crossentropy of Keras' backend compute from the logits behind its argument.

    Args:
        name: The name of the function.
        op: Which operation makes its argument of logits, in compiled code.
        of_probabilities: Computes it where there are no logits, from labels and probabilities; default: as Keras 3.
        of_logits: Computes it of labels and logits; default: as Keras 3.
    """
    original: Callable[..., Any] = getattr(keras_nn, name)

    @functools.wraps(original)
    def crossentropy(
        target: Tensor, output: Tensor, from_logits: bool = False, *args: Argument, **kwargs: Argument
    ) -> Any:
        if not is_called_by_us():
            return original(target, output, from_logits, *args, **kwargs)
        logits = find(output, op)
        if logits is None:
            if from_logits and of_logits is not None:
                return of_logits(original, target, output, *args, **kwargs)
            if from_logits or of_probabilities is None:
                return original(target, output, from_logits, *args, **kwargs)
            return of_probabilities(original, target, output, *args, **kwargs)
        if from_logits:
            warnings.warn(
                f"{name} received from_logits=True, but its argument was produced by a {op} activation and thus is "
                "no logits. The logits before the activation are used. Was this intended?",
                stacklevel=2,
            )
        if of_logits is not None:
            return of_logits(original, target, logits, *args, **kwargs)
        return original(target, logits, True, *args, **kwargs)

    setattr(keras_nn, name, crossentropy)


def _clip(output: Tensor) -> Any:
    output = jnp.asarray(output)
    return jnp.clip(output, keras.config.epsilon(), 1.0 - keras.config.epsilon())


def _categorical_of_logits(
    original: Callable[..., Any], target: Tensor, logits: Tensor, axis: int = -1, **kwargs: Argument
) -> Any:
    loss = original(target, logits, True, axis, **kwargs)
    # TensorFlow's derivative takes labels for distributions, whatever they add up to.
    return loss + derivative_of_distributions(jnp.asarray(target, loss.dtype), logits, axis)


def _sparse_of_probabilities(
    original: Callable[..., Any], target: Tensor, output: Tensor, *args: Argument, **kwargs: Argument
) -> Any:
    # Keras 2 clips before it normalises, which is another result where the probabilities do not add up to one.
    return original(target, jnp.log(_clip(output)), True, *args, **kwargs)


def _binary_of_probabilities(original: Callable[..., Any], target: Tensor, output: Tensor) -> Any:
    target = jnp.asarray(target)
    if target.shape != jnp.shape(output):
        # Keras' own error.
        return original(target, output)
    # Keras 2 adds epsilon once more, which counts where a probability is close to zero or one.
    output, epsilon = _clip(output), keras.config.epsilon()
    return -(target * jnp.log(output + epsilon) + (1.0 - target) * jnp.log(1.0 - output + epsilon))


_hard_sigmoid: Callable[..., Any] = keras_nn.hard_sigmoid


@functools.wraps(_hard_sigmoid)
def _steeper_hard_sigmoid(x: Tensor) -> Any:
    # Keras 2's slope is 0.2, Keras 3's one sixth.
    return jnp.clip(0.2 * jnp.asarray(x) + 0.5, 0.0, 1.0) if is_called_by_us() else _hard_sigmoid(x)


keras_nn.hard_sigmoid = _steeper_hard_sigmoid
_record("softmax", "Softmax")
_record("sigmoid", "Sigmoid")
_use_logits("categorical_crossentropy", "Softmax", None, _categorical_of_logits)
_use_logits("sparse_categorical_crossentropy", "Softmax", _sparse_of_probabilities)
_use_logits("binary_crossentropy", "Sigmoid", _binary_of_probabilities)
