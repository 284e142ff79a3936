"""tf.compat.v1.nn: tf.nn, with the functions whose arguments TensorFlow 1 names or orders differently."""

from __future__ import annotations

import functools as _functools
import inspect as _inspect
from typing import Any as _Any

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow import nn as _nn
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.compat.tensorflow._types import ShapeLike as _ShapeLike
from lockstep.errors import ArgumentError as _ArgumentError

__all__ = ["dropout", "log_softmax", "softmax", "softmax_cross_entropy_with_logits"]
__all__ += ["relu_layer", "softmax_cross_entropy_with_logits_v2", "xw_plus_b"]


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


# By function: arguments that TensorFlow 1 names differently.
_ARGUMENTS: dict[str, dict[str, str]] = {
    **{name: {"value": "input"} for name in ("avg_pool", "max_pool", "avg_pool2d")},
    **{f"conv{n}d": {"filter": "filters", "value": "input"} for n in (1, 2, 3)},
    "conv2d_transpose": {"filter": "filters", "value": "input"},
    "depthwise_conv2d": {"filter": "filters"},
    "moments": {"keep_dims": "keepdims"},
    "zero_fraction": {"input_tensor": "value"},
}


# One wrapper for each name, so that it is the same object each time.
@_functools.cache
def _find(name: str) -> _Any:
    function, renamed = getattr(_nn, name), _ARGUMENTS.get(name)
    if not renamed:
        return function
    known = _inspect.signature(function).parameters

    @_functools.wraps(function)
    def call(*args: _Argument, **kwargs: _Argument) -> _Any:
        for old, new in renamed.items():
            if old in kwargs and old not in known:
                kwargs[new] = kwargs.pop(old)
        # An option of graphs that changes no result.
        kwargs.pop("use_cudnn_on_gpu", None)
        return function(*args, **kwargs)

    return call


def xw_plus_b(x: _Tensor, weights: _Tensor, biases: _Tensor, name: str | None = None) -> _Any:
    """Returns `x` times a matrix, plus biases. Source: tf.compat.v1.nn.xw_plus_b."""
    return _nn.bias_add(_matmul(x, weights), biases, name=name)


def relu_layer(x: _Tensor, weights: _Tensor, biases: _Tensor, name: str | None = None) -> _Any:
    """Returns the positive part of `xw_plus_b`. Source: tf.compat.v1.nn.relu_layer."""
    return _nn.relu(xw_plus_b(x, weights, biases), name=name)


def _matmul(a: _Tensor, b: _Tensor) -> _Any:
    from lockstep.compat.tensorflow import linalg

    return linalg.matmul(a, b)


_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    """Returns a name of tf.nn."""
    return _find(name) if name in _nn.__all__ else _other(name)
