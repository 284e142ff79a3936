"""tf.compat.v1.nn: tf.nn, with the functions whose arguments TensorFlow 1 names or orders differently."""

from __future__ import annotations

from typing import Any as _Any

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow import nn as _nn
from lockstep.compat.tensorflow._types import ShapeLike as _ShapeLike
from lockstep.errors import ArgumentError as _ArgumentError

__all__ = ["dropout", "log_softmax", "softmax", "softmax_cross_entropy_with_logits"]
__all__ += ["softmax_cross_entropy_with_logits_v2"]


def dropout(
    x: _Tensor,
    keep_prob: _Tensor = None,
    noise_shape: _ShapeLike = None,
    seed: int | None = None,
    name: str | None = None,
    rate: _Tensor = None,
) -> _Any:
    """Sets elements to zero, all but a share `keep_prob`, or a share `rate`, and scales the others up.

    Source: tf.compat.v1.nn.dropout.
    """
    if (keep_prob is None) == (rate is None):
        raise _ArgumentError(f"One of keep_prob and rate must be given. Received: {keep_prob!r} and {rate!r}.")
    # TensorFlow 1 says what is kept, TensorFlow 2 what is dropped.
    return _nn.dropout(x, rate=1 - keep_prob if rate is None else rate, noise_shape=noise_shape, seed=seed, name=name)


def softmax(logits: _Tensor, axis: int | None = None, name: str | None = None, dim: int | None = None) -> _Any:
    """Computes tf.nn.softmax; `dim` is the older name of `axis`. Source: tf.compat.v1.nn.softmax."""
    return _nn.softmax(logits, axis=dim if axis is None else axis, name=name)


def log_softmax(logits: _Tensor, axis: int | None = None, name: str | None = None, dim: int | None = None) -> _Any:
    """Computes tf.nn.log_softmax; `dim` is the older name of `axis`. Source: tf.compat.v1.nn.log_softmax."""
    return _nn.log_softmax(logits, axis=dim if axis is None else axis, name=name)


def softmax_cross_entropy_with_logits_v2(
    labels: _Tensor, logits: _Tensor, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> _Any:
    """Returns the cross entropy of each example. Source: tf.compat.v1.nn.softmax_cross_entropy_with_logits_v2."""
    chosen = dim if axis is None else axis
    return _nn.softmax_cross_entropy_with_logits(labels, logits, axis=-1 if chosen is None else chosen, name=name)


def softmax_cross_entropy_with_logits(
    _sentinel: None = None,
    labels: _Tensor = None,
    logits: _Tensor = None,
    dim: int = -1,
    name: str | None = None,
    axis: int | None = None,
) -> _Any:
    """Returns the cross entropy of each example; no derivative is taken by the labels.

    Source: tf.compat.v1.nn.softmax_cross_entropy_with_logits.
    """
    # TensorFlow 1 takes labels and logits by name alone, for it once had them in the other order.
    if _sentinel is not None or labels is None or logits is None:
        raise _ArgumentError("labels and logits must be given by name, for their order differs. Received other ones.")
    from lockstep.compat.tensorflow._ops.create import stop_gradient

    return _nn.softmax_cross_entropy_with_logits(
        # TensorFlow 1's first version takes no derivative by the labels, the second one does.
        stop_gradient(labels),
        logits,
        axis=dim if axis is None else axis,
        name=name,
    )


_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    """Returns a name of tf.nn."""
    return getattr(_nn, name) if name in _nn.__all__ else _other(name)
