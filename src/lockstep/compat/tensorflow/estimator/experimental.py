"""tf.estimator.experimental: lockstep.estimator.experimental itself, and what TensorFlow has besides."""

from __future__ import annotations

import inspect as _inspect
from collections.abc import Callable as _Callable
from typing import Any as _Any

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _forward
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.errors import ArgumentError as _ArgumentError


def call_logit_fn(
    logit_fn: _Callable[..., _Any], features: _Tensor, mode: str, params: _Argument, config: _Argument
) -> _Any:
    """Calls a function that computes logits, with those of the arguments that it takes.

    Args:
        logit_fn: Takes features, and any of mode, params and config; returns a tensor, or a dict of tensors.
        features: The features.
        mode: The mode.
        params: The parameters.
        config: The RunConfig.

    Raises:
        InvalidArgumentError: If it returns something else.

    Source: tf.estimator.experimental.call_logit_fn.
    """
    optional = {"mode": mode, "params": params, "config": config}
    names = _inspect.signature(logit_fn).parameters
    result = logit_fn(features=features, **{name: value for name, value in optional.items() if name in names})
    parts = result.values() if isinstance(result, dict) else [result]
    if not all(hasattr(part, "dtype") for part in parts):
        raise _ArgumentError(
            f"model_fn should return a Tensor, or a dictionary of Tensors. Received from {logit_fn!r}: {result!r}."
        )
    return result


_names, _other, __dir__ = _forward.make_module(__name__, "lockstep.estimator.experimental")
# What is imported late is in __all__, too.
__all__ = [*_names, "call_logit_fn"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> _Any:
    return _other(name)
