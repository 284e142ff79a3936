"""What a model_fn makes with Keras: variables and losses.

Keras refuses to make variables from values in a stateless scope, and gives no notice of those made from initializers,
nor of how a loss was reduced. So their methods are wrapped, once; outside of a model_fn the wrappers only call them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
from keras.src.backend.common import KerasVariable, global_state

from lockstep._step.tracing import is_traced
from lockstep.errors import ArgumentError

_installed = False


def install(current: Callable[[], Any]) -> None:
    """Wraps Keras' methods.

    Args:
        current: Returns the scope of the running call of a model_fn, or `None`.
    """
    global _installed
    if _installed:
        return
    _installed = True
    theirs: Any = KerasVariable.__init__

    @functools.wraps(theirs)
    def init(self: Any, initializer: Any, shape: Any = None, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        scope = current()
        if scope is None:
            theirs(self, initializer, shape, dtype, *args, **kwargs)
            return
        if not (callable(initializer) or isinstance(initializer, str)):
            initializer, shape, dtype = _from_value(initializer, dtype)
        theirs(self, initializer, shape, dtype, *args, **kwargs)
        scope.made(self)

    KerasVariable.__init__ = init
    _note_reductions(current)


def belongs_to_metric() -> bool:
    """Whether a metric of Keras is making a variable."""
    stack = global_state.get_global_attribute("name_scope_stack") or []
    return any(isinstance(getattr(scope, "caller", None), keras.metrics.Metric) for scope in stack)


def _note_reductions(current: Callable[[], Any]) -> None:
    theirs: Any = keras.losses.Loss.__call__

    @functools.wraps(theirs)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = current()
        if scope is not None:
            scope.loss_reduction = self.reduction
        return theirs(self, *args, **kwargs)

    keras.losses.Loss.__call__ = call


def _from_value(value: Any, dtype: Any) -> tuple[Callable[..., Any], tuple[int, ...], Any]:
    """Returns an initializer that gives `value`, its shape, and its type."""
    if isinstance(value, keras.Variable):
        value = value.value
    if is_traced(value):
        raise ArgumentError(
            "The first value of a variable must not depend on features, labels or the global step. Received: a traced "
            f"value of shape {value.shape}. For a learning rate that changes, use an optimizer of lockstep.train, "
            "which takes one computed in the model_fn, or a keras.optimizers.schedules.LearningRateSchedule."
        )
    array = np.asarray(value)
    dtype = dtype or _default_dtype(value, array)
    return lambda shape, dtype: array.astype(dtype), array.shape, dtype


def _default_dtype(value: Any, array: np.ndarray) -> str:
    is_python = not hasattr(value, "dtype")
    if is_python and array.dtype.kind == "f":
        return keras.config.floatx()
    return jax.dtypes.canonicalize_dtype(array.dtype).name
