"""Collections of a model_fn, as TensorFlow 1 names them: variables, losses, summaries, and what a program adds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lockstep._types import Tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import UnsupportedError

__all__ = ["GraphKeys", "add_to_collection", "add_to_collections", "all_variables", "get_collection"]
__all__ += ["get_collection_ref", "global_variables", "local_variables", "model_variables"]
__all__ += ["moving_average_variables", "trainable_variables"]


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
    model = _model_fn_scope("tf.compat.v1.global_variables")
    return _with_prefix([v for v in model.variables.values() if not model.is_local(v)], scope)


def all_variables() -> list[Any]:
    """Returns `global_variables`. Source: tf.compat.v1.all_variables."""
    return global_variables()


def local_variables(scope: str | None = None) -> list[Any]:
    """Returns the variables that start anew in each run, such as metrics'; as `trainable_variables`.

    Source: tf.compat.v1.local_variables.
    """
    model = _model_fn_scope("tf.compat.v1.local_variables")
    return _with_prefix([v for v in model.variables.values() if model.is_local(v)], scope)


def model_variables(scope: str | None = None) -> list[Any]:
    """Returns the variables that a program has put into that collection. Source: tf.compat.v1.model_variables."""
    return get_collection(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Any]:
    """Returns the variables that a program has put into that collection.

    Source: tf.compat.v1.moving_average_variables.
    """
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


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
    if key == GraphKeys.LOCAL_VARIABLES:
        return local_variables(scope)
    if key == GraphKeys.METRIC_VARIABLES:
        own = {id(v) for v in model.collections.get(_OWN_LOCALS, [])}
        return [v for v in local_variables(scope) if id(v) not in own]
    if key == GraphKeys.GLOBAL_STEP:
        return [model.global_step]
    if key == GraphKeys.SUMMARIES:
        return list(model.recorded.summaries)
    if key == GraphKeys.REGULARIZATION_LOSSES:
        # Penalties of Keras' layers are in no collection.
        from lockstep.estimator.losses import get_regularization_losses

        return get_regularization_losses()
    members = list(model.collections.get(key, []))
    if scope is None:
        return members
    # TensorFlow leaves out what has no name.
    return [m for m in members if isinstance(getattr(m, "name", None), str) and re.match(scope, m.name)]


def get_collection_ref(key: str) -> list[Any]:
    """Returns the list of a collection of your own, which may be changed. Source: tf.compat.v1.get_collection_ref.

    Raises:
        UnsupportedError: For collections whose members follow from what the model_fn does.
    """
    if key in _DERIVED:
        raise UnsupportedError(
            f"What is in the collection {key!r} follows from the model_fn, and cannot be changed by its list. Use "
            "tf.compat.v1.get_collection to read it."
        )
    return _model_fn_scope("tf.compat.v1.get_collection_ref").collections.setdefault(key, [])


def add_to_collection(name: str, value: Tensor) -> None:
    """Puts a value into a collection of the model_fn. Source: tf.compat.v1.add_to_collection.

    Raises:
        StartupOrderError: Outside of a model_fn.
        UnsupportedError: For variables and updates, which are not chosen by collections.
    """
    # These follow from what the model_fn does; an entry by hand would have no effect.
    if name in _DERIVED:
        raise UnsupportedError(
            f"What is in the collection {name!r} follows from the model_fn. Received: {value!r}. Leave the call out; "
            "trainable=False keeps a variable from being trained."
        )
    _model_fn_scope("tf.compat.v1.add_to_collection").collections.setdefault(name, []).append(value)


def add_to_collections(names: Argument, value: Tensor) -> None:
    """Puts a value into several collections. Source: tf.compat.v1.add_to_collections."""
    for name in {names} if isinstance(names, str) else set(names):
        add_to_collection(name, value)


# Variables of the program among the local ones; the others are metrics'.
_OWN_LOCALS = "lockstep.compat/local_variables"
_DERIVED = (
    *(GraphKeys.TRAINABLE_VARIABLES, GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES, GraphKeys.GLOBAL_STEP),
    *(GraphKeys.TRAIN_OP, GraphKeys.METRIC_VARIABLES),
)


def join_collections(variable: Any, collections: Iterable[str] | None) -> None:
    """Puts a new variable into collections, among them that of variables which start anew in each run."""
    names = [] if collections is None else list(collections)
    if not names:
        return
    model = _model_fn_scope("A variable's collections")
    if GraphKeys.LOCAL_VARIABLES in names and GraphKeys.GLOBAL_VARIABLES not in names:
        model.make_local(variable)
        model.collections.setdefault(_OWN_LOCALS, []).append(variable)
    for name in names:
        if name not in _DERIVED:
            model.collections.setdefault(name, []).append(variable)
