"""Variables as TensorFlow 1 finds and changes them: in a model_fn."""

# ruff: noqa: D417

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._ops.training import group
from lockstep.compat.tensorflow._ops.variable import Variable as _Variable
from lockstep.compat.tensorflow._types import Argument, DTypeLike, ShapeLike
from lockstep.compat.tensorflow.compat.v1._collections import join_collections
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["Variable", "assign", "assign_add", "assign_sub", "global_variables_initializer"]
__all__ += ["initialize_all_variables", "initialize_local_variables", "local_variables_initializer", "placeholder"]
__all__ += ["placeholder_with_default", "tables_initializer", "variables_initializer"]


class _AnyVariable(type(_Variable)):
    def __instancecheck__(self, instance: object) -> bool:
        # One kind of variables: what tf.Variable and get_variable make is a tf.compat.v1.Variable, too.
        return isinstance(instance, _Variable)


class Variable(_Variable, metaclass=_AnyVariable):
    """A value that can be changed, with TensorFlow 1's order of arguments. Source: tf.compat.v1.Variable."""

    def __init__(
        self,
        initial_value: Tensor = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: object = None,
        name: str | None = None,
        variable_def: object = None,
        dtype: DTypeLike = None,
        expected_shape: ShapeLike = None,
        import_scope: object = None,
        constraint: Any = None,
        use_resource: object = None,
        synchronization: str = "auto",
        aggregation: str | None = None,
        shape: ShapeLike = None,
    ) -> None:
        """Creates a variable; see tf.Variable, and `get_variable` for `collections`."""
        super().__init__(
            initial_value,
            trainable,
            validate_shape,
            caching_device,
            name,
            variable_def,
            dtype,
            import_scope,
            constraint,
            synchronization,
            aggregation,
            expected_shape if shape is None else shape,
        )
        join_collections(self, collections)


def assign(
    ref: Tensor, value: Tensor, validate_shape: bool = True, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Sets a variable, where it is written; returns the variable. Source: tf.compat.v1.assign.

    Args:
        ref: A variable.
        value: Of its shape.
        validate_shape: Must be true.
        use_locking: Either: nothing else changes the variable meanwhile.
    """
    if not validate_shape:
        raise UnsupportedError("A variable keeps its shape. Received: validate_shape=False. Leave it out.")
    _variable(ref, "tf.compat.v1.assign").assign(value)
    return ref


def assign_add(ref: Tensor, value: Tensor, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Adds to a variable, where it is written; returns the variable.

    Of the global step it returns the update, which counts if it is in the train_op.

    Source: tf.compat.v1.assign_add.
    """
    scope = model_fn_scope()
    if (scope is not None and ref is scope.global_step) or _is_name_of_step(ref):
        if isinstance(value, Tracer) or np.ndim(value) or int(value) != value or value < 0:
            raise UnsupportedError(
                f"What is added to the global step is a whole number that is known. Received: {value!r}. Write 1."
            )
        from lockstep.estimator.internal import count_steps

        return count_steps(int(value))
    _variable(ref, "tf.compat.v1.assign_add").assign_add(value)
    return ref


def assign_sub(ref: Tensor, value: Tensor, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Subtracts from a variable, where it is written; returns the variable. Source: tf.compat.v1.assign_sub."""
    _variable(ref, "tf.compat.v1.assign_sub").assign_sub(value)
    return ref


def _is_name_of_step(ref: Tensor) -> bool:
    # What get_global_step() returns outside of a model_fn.
    module = sys.modules.get("lockstep.estimator.train._global_step")
    return module is not None and isinstance(ref, module.GlobalStep)


def _variable(ref: Tensor, what: str) -> Any:
    if isinstance(ref, keras.Variable):
        return ref
    raise ArgumentError(f"{what} changes a variable. Received: {ref!r}. Make a tf.Variable.")


def _make_no_op(name: str, why: str) -> Any:
    # Any arguments: variables, a name.
    def no_op(*args: Argument, **kwargs: Argument) -> Any:
        return group()

    no_op.__name__ = no_op.__qualname__ = name
    no_op.__doc__ = f"Returns an update that does nothing: {why}. Source: tf.compat.v1.{name}."
    return no_op


_READY = "variables have their value from the start"
global_variables_initializer = _make_no_op("global_variables_initializer", _READY)
local_variables_initializer = _make_no_op("local_variables_initializer", _READY)
variables_initializer = _make_no_op("variables_initializer", _READY)
initialize_all_variables = _make_no_op("initialize_all_variables", _READY)
initialize_local_variables = _make_no_op("initialize_local_variables", _READY)
tables_initializer = _make_no_op("tables_initializer", "tables are ready from the start")


def placeholder(dtype: DTypeLike, shape: ShapeLike = None, name: str | None = None) -> Any:
    """Returns what stands for an input, in a serving_input_receiver_fn or for build_raw_serving_input_receiver_fn.

    Args:
        dtype: Of its values.
        shape: Sizes, `None` for those that may be any. Text without a shape is a batch: (None,).

    Source: tf.compat.v1.placeholder.
    """
    from lockstep.compat.tensorflow._dtypes import as_dtype
    from lockstep.estimator.internal import placeholder as placed

    kind = as_dtype(dtype).dtype
    if shape is None and kind == np.dtype(object):
        # What text is fed for: a batch of serialized examples.
        shape = (None,)
    return placed(kind, None if shape is None else tuple(shape), name)


def placeholder_with_default(input: Tensor, shape: ShapeLike, name: str | None = None) -> Any:
    """Returns the value: nothing is fed in its place. Source: tf.compat.v1.placeholder_with_default.

    Args:
        input: The value.
        shape: Of it; `None` for sizes that may be any.

    Raises:
        ArgumentError: If the value does not fit the shape.
    """
    from lockstep.compat.tensorflow._ops.dispatch import pick

    _, array = pick(input)
    sizes = None if shape is None else tuple(shape)
    if sizes is not None and (
        len(sizes) != array.ndim or any(n not in (None, m) for n, m in zip(sizes, array.shape, strict=True))
    ):
        raise ArgumentError(f"The value must fit shape={sizes}. Received: shape {tuple(array.shape)}.")
    return array
