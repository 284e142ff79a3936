"""Variables as TensorFlow 1 finds and changes them: in a model_fn."""

# ruff: noqa: D417

from __future__ import annotations

import re
from typing import Any

import keras

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._ops.training import group
from lockstep.compat.tensorflow._types import Argument, DTypeLike, ShapeLike
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["GraphKeys", "add_to_collection", "assign", "assign_add", "assign_sub", "get_collection", "global_variables"]
__all__ += ["global_variables_initializer", "initialize_all_variables", "local_variables_initializer", "placeholder"]
__all__ += ["tables_initializer", "trainable_variables", "variables_initializer"]


# TensorFlow's values: programs write the text, too.
class GraphKeys:
    """Names of collections. Source: tf.compat.v1.GraphKeys."""

    ACTIVATIONS = "activations"
    ASSET_FILEPATHS = "asset_filepaths"
    BIASES = "biases"
    EVAL_STEP = "eval_step"
    GLOBAL_STEP = "global_step"
    GLOBAL_VARIABLES = "variables"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    LOCAL_VARIABLES = "local_variables"
    LOSSES = "losses"
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    READY_OP = "ready_op"
    REGULARIZATION_LOSSES = "regularization_losses"
    SAVERS = "savers"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    TABLE_INITIALIZERS = "table_initializer"
    TRAINABLE_VARIABLES = "trainable_variables"
    TRAIN_OP = "train_op"
    UPDATE_OPS = "update_ops"
    VARIABLES = "variables"
    WEIGHTS = "weights"


def _model_fn_scope(what: str) -> Any:
    from lockstep.estimator.internal import demand

    return demand(what)


def _with_prefix(variables: list[Any], scope: str | None) -> list[Any]:
    if scope is None:
        return variables
    key_of = _model_fn_scope("tf.compat.v1.get_collection").key_of
    # TensorFlow matches from the beginning of the name.
    return [v for v in variables if re.match(scope, key_of(v))]


def trainable_variables(scope: str | None = None) -> list[Any]:
    """Returns the trainable variables of the model_fn that there are so far.

    Args:
        scope: A regular expression that their names begin with.

    Source: tf.compat.v1.trainable_variables.
    """
    return _with_prefix(_model_fn_scope("tf.compat.v1.trainable_variables").trainable_variables(), scope)


def global_variables(scope: str | None = None) -> list[Any]:
    """Returns all variables of the model_fn that there are so far; as `trainable_variables`.

    Source: tf.compat.v1.global_variables.
    """
    return _with_prefix(list(_model_fn_scope("tf.compat.v1.global_variables").variables.values()), scope)


def get_collection(key: str, scope: str | None = None) -> list[Any]:
    """Returns what the model_fn has put into a collection so far.

    Variables, losses, summaries and the global step are in those that `GraphKeys` names; updates are not: they are
    carried out where they are written.

    Args:
        key: The name of the collection.
        scope: For variables: a regular expression that their names begin with.

    Raises:
        StartupOrderError: Outside of a model_fn.

    Source: tf.compat.v1.get_collection.
    """
    model = _model_fn_scope("tf.compat.v1.get_collection")
    if key == GraphKeys.TRAINABLE_VARIABLES:
        return trainable_variables(scope)
    if key == GraphKeys.GLOBAL_VARIABLES:
        return global_variables(scope)
    if key == GraphKeys.GLOBAL_STEP:
        return [model.global_step]
    if key == GraphKeys.SUMMARIES:
        return list(model.recorded.summaries)
    if key == GraphKeys.REGULARIZATION_LOSSES:
        # Penalties of Keras' layers are in no collection.
        from lockstep.estimator.losses import get_regularization_losses

        return get_regularization_losses()
    return list(model.collections.get(key, []))


def add_to_collection(name: str, value: Tensor) -> None:
    """Puts a value into a collection of the model_fn. Source: tf.compat.v1.add_to_collection.

    Raises:
        StartupOrderError: Outside of a model_fn.
        UnsupportedError: For variables and updates, which are not chosen by collections.
    """
    refused = (GraphKeys.TRAINABLE_VARIABLES, GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP, GraphKeys.TRAIN_OP)
    # These follow from what the model_fn does; an entry by hand would have no effect.
    if name in refused:
        raise UnsupportedError(
            f"What is in the collection {name!r} follows from the model_fn. Received: {value!r}. Leave the call out; "
            "trainable=False keeps a variable from being trained."
        )
    _model_fn_scope("tf.compat.v1.add_to_collection").collections.setdefault(name, []).append(value)


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

    Of the global step it returns an update that does nothing besides: each step is counted once.

    Source: tf.compat.v1.assign_add.
    """
    scope = model_fn_scope()
    if scope is not None and ref is scope.global_step:
        # The step itself counts; programs write assign_add(global_step, 1) where an optimizer is not told of the global
        # step.
        if not isinstance(value, int) or value != 1:
            raise UnsupportedError(f"Each step counts as one. Received: {value!r}, to be added to the global step.")
        return group()
    _variable(ref, "tf.compat.v1.assign_add").assign_add(value)
    return ref


def assign_sub(ref: Tensor, value: Tensor, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Subtracts from a variable, where it is written; returns the variable. Source: tf.compat.v1.assign_sub."""
    _variable(ref, "tf.compat.v1.assign_sub").assign_sub(value)
    return ref


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
tables_initializer = _make_no_op("tables_initializer", "tables are ready from the start")


def placeholder(dtype: DTypeLike, shape: ShapeLike = None, name: str | None = None) -> Any:
    """Returns what stands for an input, in a serving_input_receiver_fn or for build_raw_serving_input_receiver_fn.

    Args:
        dtype: Of its values.
        shape: Sizes, `None` for those that may be any.

    Source: tf.compat.v1.placeholder.
    """
    from lockstep.compat.tensorflow._dtypes import as_dtype
    from lockstep.estimator.internal import placeholder as placed

    return placed(as_dtype(dtype).dtype, None if shape is None else tuple(shape), name)
