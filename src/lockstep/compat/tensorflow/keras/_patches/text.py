"""Models that take text, in calls and in fit, evaluate and predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras.src.models.functional import Functional

from lockstep._types import Model, PyTree, Tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import replaces
from lockstep.compat.tensorflow.keras._sparse_inputs import to_dense
from lockstep.compat.tensorflow.keras._text_inputs import (
    build_for,
    columns_of,
    cut_of,
    functional_of,
    holds_text,
    is_prepared,
)


@replaces(keras.Model, "__call__")
def _call_with_text(original: Callable[..., Any], self: Model, *args: Argument, **kwargs: Argument) -> Any:
    if args:
        args = (to_dense(args[0]), *args[1:])
    inputs = args[0] if args else None
    if inputs is None or is_prepared(inputs) or not holds_text(inputs):
        return original(self, *args, **kwargs)
    columns = columns_of(self)
    if columns is not None:
        from lockstep.compat.tensorflow.keras._column_inputs import encode

        return original(self, encode(columns, inputs), *args[1:], **kwargs)
    build_for(self, inputs)
    cut = cut_of(self)
    if cut is not None:
        return original(self, cut.prepare(inputs), *args[1:], **kwargs)
    if functional_of(self) is None:
        # Keras would make JAX's arrays of the inputs; the layers do so themselves.
        self._convert_input_args, self._allow_non_tensor_positional_args = False, True
    return original(self, *args, **kwargs)


@replaces(Functional, "call")
def _call_prepared(
    original: Callable[..., Any],
    self: Model,
    inputs: PyTree,
    training: Any = None,
    mask: Tensor = None,
    **kwargs: Argument,
) -> Any:
    if not is_prepared(inputs):
        return original(self, inputs, training=training, mask=mask, **kwargs)
    cut = cut_of(self)
    assert cut is not None
    return cut.run(inputs, training, kwargs)


def _check_unless_prepared(original: Callable[..., None], self: Model, *args: Argument) -> None:
    # What the compiled part takes has other names and shapes than the model's inputs.
    if not args or not is_prepared(args[0]):
        original(self, *args)


replaces(Functional, "_assert_input_compatibility")(_check_unless_prepared)
replaces(keras.Sequential, "_assert_input_compatibility")(_check_unless_prepared)


def _specify_prepared(
    original: Callable[..., Any], self: Model, inputs: PyTree, *args: Argument, **kwargs: Argument
) -> Any:
    if not is_prepared(inputs):
        return original(self, inputs, *args, **kwargs)
    cut = cut_of(self)
    assert cut is not None
    return cut.run(inputs, False, {})


replaces(Functional, "compute_output_spec")(_specify_prepared)
replaces(keras.Sequential, "compute_output_spec")(_specify_prepared)
