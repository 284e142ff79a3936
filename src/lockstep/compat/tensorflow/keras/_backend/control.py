"""Choices and functions of Keras 2's backend, and what graphs and sessions were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import keras
import numpy as np
from keras import ops

from lockstep._types import Tensor
from lockstep.compat.tensorflow._types import Argument, DTypeLike, ShapeLike
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["function", "get_session", "gradients", "in_test_phase", "in_train_phase", "learning_phase"]
__all__ += ["learning_phase_scope", "manual_variable_initialization", "map_fn", "placeholder", "set_learning_phase"]
__all__ += ["set_session", "switch"]


def switch(condition: Tensor, then_expression: Tensor, else_expression: Tensor) -> Any:
    """Returns one of two values, or of what two functions return.

    Args:
        condition: One truth value, or one for each element or for each of the first axes.
        then_expression: A value, or a function without arguments.
        else_expression: Likewise, of the same shape.
    """
    chosen: Any = ops.cast(condition, "bool")
    # One condition and two functions: only the chosen one runs.
    if not chosen.shape and callable(then_expression) and callable(else_expression):
        return ops.cond(chosen, then_expression, else_expression)
    then = then_expression() if callable(then_expression) else then_expression
    other = else_expression() if callable(else_expression) else else_expression
    rank = len(getattr(then, "shape", ()))
    if 1 < len(chosen.shape) < rank:
        # A condition for the first axes is spread over the others.
        chosen = ops.reshape(chosen, (*chosen.shape, *[1] * (rank - len(chosen.shape))))
    return ops.where(chosen, then, other)


def in_train_phase(x: Tensor, alt: Tensor, training: Any = None) -> Any:
    """Returns `x` when training, else `alt`; either may be a function.

    Raises:
        UnsupportedError: If `training` is None.
    """
    # Keras 2 asked its global learning phase, which the error is about.
    if training is None:
        learning_phase()
    if isinstance(training, (bool, int, np.bool_)):
        chosen = x if training else alt
        return chosen() if callable(chosen) else chosen
    return switch(training, x, alt)


def in_test_phase(x: Tensor, alt: Tensor, training: Any = None) -> Any:
    """Returns `x` when not training, else `alt`; either may be a function.

    Raises:
        UnsupportedError: If `training` is None.
    """
    return in_train_phase(alt, x, training)


def function(
    inputs: Tensor, outputs: Any, updates: Tensor = None, name: str | None = None, **kwargs: Argument
) -> Callable[[Any], Any]:
    """Returns a function that computes some of a model's tensors from others.

    Args:
        inputs: A tensor of a functional model, or a list.
        outputs: A tensor, or a list.
        updates: Must be empty.
        name: The name of the function.
        **kwargs: None.

    Returns:
        A function of a list of arrays (or of one), which returns numpy arrays in the form of `outputs`.

    Raises:
        ArgumentError: If `updates`, or an argument of sessions, is given.
    """
    if updates or kwargs:
        refused = ", ".join(["updates"] * bool(updates) + list(kwargs))
        raise ArgumentError(
            f"K.function computes, and changes nothing: received {refused}. Assign to variables after the call."
        )
    model = keras.Model(inputs if isinstance(inputs, (list, tuple)) else [inputs], outputs, name=name)

    def call(values: Tensor) -> Any:
        tensors = list(values) if isinstance(values, (list, tuple)) else [values]
        # training=False: K.function without a learning phase computed the test phase.
        computed = model([ops.convert_to_tensor(value) for value in tensors], training=False)
        return keras.tree.map_structure(ops.convert_to_numpy, computed)

    return call


def placeholder(
    shape: ShapeLike = None, ndim: int | None = None, dtype: DTypeLike = None, name: str | None = None
) -> Any:
    """Returns the input of a functional model; the shape has the axis of the batch.

    Raises:
        ArgumentError: If neither `shape` nor `ndim` is given.
    """
    if shape is None and ndim is None:
        raise ArgumentError("K.placeholder needs shape= or ndim=: received neither.")
    return keras.Input(batch_shape=tuple(shape or (None,) * (ndim or 0)), dtype=dtype, name=name)


def map_fn(fn: Callable[[Any], Any], elems: Tensor, name: str | None = None, dtype: DTypeLike = None) -> Any:
    """Applies a function to each element along the first axis."""
    mapped = ops.map(fn, elems)
    return mapped if dtype is None else ops.cast(mapped, dtype)


def _make_refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def function(*args: Argument, **kwargs: Argument) -> NoReturn:
        raise UnsupportedError(f"keras.backend.{name} belongs to graphs and sessions, which Keras 3 has not. {instead}")

    function.__name__ = name
    function.__doc__ = f"Says what to do instead. {instead}\n\nRaises:\n    UnsupportedError: Always."
    return function


_TRAINING = "Give the call training=True or training=False, and take it as an argument of call()."
get_session = _make_refusal("get_session", "Everything runs at once: call model(x), or model.predict(x).")
set_session = _make_refusal("set_session", "Set devices and threads through lockstep.config or a strategy.")
learning_phase = _make_refusal("learning_phase", _TRAINING)
set_learning_phase = _make_refusal("set_learning_phase", _TRAINING)
learning_phase_scope = _make_refusal("learning_phase_scope", _TRAINING)
gradients = _make_refusal("gradients", "Use jax.grad of a function that calls model.stateless_call.")
manual_variable_initialization = _make_refusal(
    "manual_variable_initialization", "Variables have values once they exist."
)
