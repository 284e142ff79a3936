"""Hooks into Keras for the variables and losses that a model_fn creates.

Keras refuses to create variables from values in a stateless scope, and reports neither those created from initializers
nor the reductions of losses. So these methods are wrapped, once; outside of a model_fn the wrappers only call them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import keras
import numpy as np
from keras.src.backend.common import KerasVariable, global_state

from lockstep._engine.step.jaxprs import is_traced
from lockstep._types import ArrayLike, DType
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.estimator._model_fn.scope import ModelScope

_installed = False


def install(current: Callable[[], ModelScope | None]) -> None:
    """Wraps Keras' methods, once per process.

    Args:
        current: Returns the scope of the current model_fn call, or `None`.
    """
    global _installed
    if _installed:
        return
    _installed = True
    keras_init: Any = KerasVariable.__init__

    @functools.wraps(keras_init)
    def init(
        self: Any,
        initializer: object,
        shape: Sequence[int] | None = None,
        dtype: DType | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        scope = current()
        if scope is None:
            keras_init(self, initializer, shape, dtype, *args, **kwargs)
            return
        if not (callable(initializer) or isinstance(initializer, str)):
            initializer, shape, dtype = _from_value(initializer, dtype)
        keras_init(self, initializer, shape, dtype, *args, **kwargs)
        scope.register(self)

    KerasVariable.__init__ = init
    _record_reductions(current)


def belongs_to_metric() -> bool:
    """Returns whether a metric of Keras is creating a variable."""
    # A metric's variables start anew in each evaluation and are in no checkpoint; the open name scopes know their
    # owner.
    stack = global_state.get_global_attribute("name_scope_stack") or []
    return any(isinstance(getattr(scope, "caller", None), keras.metrics.Metric) for scope in stack)


def _record_reductions(current: Callable[[], ModelScope | None]) -> None:
    keras_call: Any = keras.losses.Loss.__call__

    @functools.wraps(keras_call)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = current()
        if scope is not None:
            # Decides whether replicas' losses are summed or averaged.
            scope.loss_reduction = self.reduction
        return keras_call(self, *args, **kwargs)

    keras.losses.Loss.__call__ = call


def _from_value(value: ArrayLike, dtype: DType) -> tuple[Callable[..., Any], tuple[int, ...], Any]:
    """Returns an initializer that returns `value`, and its shape and dtype."""
    if isinstance(value, keras.Variable):
        value = value.value
    if is_traced(value):
        raise ArgumentError(
            "The first value of a variable must not depend on features, labels or the global step. Received: a traced "
            f"value of shape {value.shape}. For a learning rate that changes, use an optimizer of "
            "lockstep.estimator.train, which takes one computed in the model_fn, or a "
            "keras.optimizers.schedules.LearningRateSchedule."
        )
    array = np.asarray(value)
    dtype = dtype or _default_dtype(value, array)
    return lambda shape, dtype: array.astype(dtype), array.shape, dtype


def _default_dtype(value: ArrayLike, array: np.ndarray) -> str:
    is_python = not hasattr(value, "dtype")
    if is_python and array.dtype.kind == "f":
        return keras.config.floatx()
    return jax.dtypes.canonicalize_dtype(array.dtype).name
