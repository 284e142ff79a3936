"""Variables that TensorFlow 1 finds again by their name: in a model_fn, in variable scopes."""

# ruff: noqa: D417

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras.src.backend.common.name_scope import current_path

from lockstep.compat.tensorflow._dtypes import as_dtype, float32
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._ops.variable import Variable
from lockstep.compat.tensorflow._types import Argument, DTypeLike, Initializer, ShapeLike
from lockstep.compat.tensorflow.compat.v1 import _initializers
from lockstep.compat.tensorflow.compat.v1._collections import GraphKeys, join_collections
from lockstep.compat.tensorflow.compat.v1._partitioners import with_types
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError

__all__ = ["AUTO_REUSE", "get_local_variable", "get_variable", "get_variable_scope", "name_scope", "variable_scope"]

_STORE = "lockstep.compat/variables"
# Input pipelines and the model_fn may run on different threads.
_open = threading.local()


# Neither True nor False: a value of its own, as in TensorFlow.
class _AutoReuse:
    def __repr__(self) -> str:
        return "tf.compat.v1.AUTO_REUSE"


AUTO_REUSE = _AutoReuse()


@dataclass
class VariableScope:
    """Defaults of `get_variable` while a scope is open. Source: tf.compat.v1.VariableScope.

    Attributes:
        name: Its path.
        reuse: Whether variables are found again: `True`, `False`, or `AUTO_REUSE` to make those that are not there.
        initializer: For variables that are given none.
        regularizer: For variables that are given none.
        partitioner: For variables that are given none.
        dtype: For variables that are given none.
    """

    name: str = ""
    reuse: Any = False
    initializer: Any = None
    regularizer: Any = None
    partitioner: Any = None
    dtype: Any = float32

    def reuse_variables(self) -> None:
        """Lets `get_variable` find variables again from here on."""
        self.reuse = True


def get_variable_scope() -> VariableScope:
    """Returns the scope that is open. Source: tf.compat.v1.get_variable_scope."""
    return getattr(_open, "scope", None) or VariableScope()


@contextlib.contextmanager
def variable_scope(
    name_or_scope: Any,
    default_name: str | None = None,
    values: Argument = None,
    initializer: Initializer = None,
    regularizer: Initializer = None,
    caching_device: object = None,
    partitioner: object = None,
    custom_getter: object = None,
    reuse: Any = None,
    dtype: DTypeLike = None,
    use_resource: object = None,
    constraint: Initializer = None,
    auxiliary_name_scope: bool = True,
) -> Generator[VariableScope]:
    """Opens a context whose name is put before those of variables and layers that are made in it.

    Args:
        name_or_scope: Its name, or a scope that was open before.
        default_name: Its name if there is none; a number is added where there is such a scope already.
        values: Accepted: which tensors are meant has no effect.
        initializer: For variables that are given none.
        regularizer: For variables that are given none.
        caching_device: Refused, as are `custom_getter` and `constraint`.
        partitioner: For variables that are given none; see `get_variable`.
        reuse: Whether variables are found again; default: as outside.
        dtype: For variables that are given none.
        use_resource: Either: there is one kind of variables.
        auxiliary_name_scope: Must be true.

    Source: tf.compat.v1.variable_scope.
    """
    refused = (caching_device, custom_getter, constraint)
    if any(option is not None for option in refused) or not auxiliary_name_scope:
        raise UnsupportedError(
            "JAX places variables. caching_device, custom_getter, constraint and auxiliary_name_scope=False of "
            "variable_scope are TensorFlow's alone; leave them out."
        )
    # Inherited like TensorFlow's: from the scope that is given, else from the one that is open.
    outer = get_variable_scope()
    base = name_or_scope if isinstance(name_or_scope, VariableScope) else outer
    scope = VariableScope(
        reuse=base.reuse if reuse is None else reuse,
        initializer=base.initializer if initializer is None else initializer,
        regularizer=base.regularizer if regularizer is None else regularizer,
        partitioner=base.partitioner if partitioner is None else partitioner,
        dtype=base.dtype if dtype is None else dtype,
    )
    with _name_scope(name_or_scope, default_name), _dividing(scope.partitioner):
        scope.name = current_path() or ""
        _open.scope = scope
        try:
            yield scope
        finally:
            _open.scope = outer


@contextlib.contextmanager
def name_scope(name: str | None, default_name: str | None = None, values: Argument = None) -> Generator[str]:
    """Opens a context whose name is put before those of Keras' variables made in it; gives its path, with a "/".

    Args:
        name: Its name; that of an open scope, with its "/", opens this one again.
        default_name: Its name if there is none; with neither nothing is opened.
        values: Accepted: which tensors are meant has no effect.

    Source: tf.compat.v1.name_scope.
    """
    found = default_name if name is None else name
    if not found:
        yield ""
        return
    again = {"deduplicate": False, "override_parent": ""} if found.endswith("/") else {}
    with keras.name_scope(found.rstrip("/"), **again):
        yield f"{current_path()}/"


def _dividing(partitioner: Any) -> Any:
    """Has parameter servers divide the variables that are made within the context."""
    if partitioner is None:
        return contextlib.nullcontext()
    call = model_fn_scope()
    if call is None:
        raise UnsupportedError(
            "Parameter servers divide the variables of a model_fn. Received: partitioner outside of one. Pass "
            "variable_partitioner to tf.distribute.ParameterServerStrategy."
        )
    return call.dividing(with_types(partitioner))


def _name_scope(name_or_scope: Any, default_name: str | None) -> Any:
    if isinstance(name_or_scope, VariableScope):
        # The path of a scope starts anew from the outermost one.
        return keras.name_scope(name_or_scope.name, deduplicate=False, override_parent="")
    if name_or_scope is None and default_name is None:
        raise ArgumentError("variable_scope needs a name, or a default_name. Received neither.")
    if name_or_scope is None:
        return keras.name_scope(_unique_name(str(default_name)), deduplicate=False)
    return keras.name_scope(str(name_or_scope), deduplicate=False)


def _unique_name(name: str) -> str:
    """Returns a name that no scope of this call of the model_fn has yet."""
    # default_name is numbered within a call of the model_fn, so that each call makes the same names.
    used = _store().setdefault("scopes", set())
    unique, number = name, 0
    while (current_path(), unique) in used:
        number += 1
        unique = f"{name}_{number}"
    used.add((current_path(), unique))
    return unique


def _store() -> dict[str, Any]:
    """Returns the variables and layers of this call of the model_fn, by kind and name."""
    from lockstep.estimator.internal import demand

    return demand("tf.compat.v1.get_variable").collections.setdefault(_STORE, [{}])[0]


def find_or_make(kind: str, name: str, reuse: Any, make: Any) -> Any:
    """Returns what was made under a name in the scope that is open, or makes it.

    Args:
        kind: Of what it is, for messages.
        name: Its name in the scope.
        reuse: Whether it may, or must, be there; `None`: as the scope says.
        make: Makes it.

    Raises:
        ArgumentError: It is there and must not be, or the other way round.
    """
    path = current_path()
    full = f"{path}/{name}" if path else name
    # The store belongs to one call of the model_fn: the next call makes and finds its variables anew.
    store, wanted = _store().setdefault(kind, {}), get_variable_scope().reuse if reuse is None else reuse
    # TensorFlow 1's rule, which finds names that were meant to be different.
    if full in store and not wanted:
        raise ArgumentError(
            f"{kind} {full} already exists. Did you mean to set reuse=True or reuse=tf.compat.v1.AUTO_REUSE in "
            "variable_scope? Else give it another name."
        )
    if full not in store and wanted is True:
        raise ArgumentError(
            f"{kind} {full} does not exist, and reuse=True finds only what was made. Received names: "
            f"{sorted(store)}. Did you mean reuse=tf.compat.v1.AUTO_REUSE?"
        )
    if full not in store:
        store[full] = make()
    return store[full]


def get_variable(
    name: str,
    shape: ShapeLike = None,
    dtype: DTypeLike = None,
    initializer: Initializer = None,
    regularizer: Initializer = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: object = None,
    partitioner: object = None,
    validate_shape: bool = True,
    use_resource: object = None,
    custom_getter: object = None,
    constraint: Initializer = None,
    synchronization: str = "auto",
    aggregation: str = "none",
) -> Any:
    """Returns the variable of a name in the variable scope that is open; makes it if that allows.

    Outside of a model_fn each call makes a variable, as in TensorFlow's eager mode.

    Args:
        name: Its name.
        shape: Its shape; not needed if `initializer` is an array.
        dtype: Type of the elements; default: that of the scope, float32.
        initializer: An array, or a function of shape and dtype. Default: that of the scope, else Glorot's for floats
            and zeros for others.
        regularizer: A function of its value, which `losses.get_regularization_losses` adds up.
        trainable: Whether optimizers change it; default: yes.
        collections: Names of collections that it joins. One in `GraphKeys.LOCAL_VARIABLES` starts anew in each run and
            is in no checkpoint.
        caching_device: Refused, and so are `custom_getter` and `validate_shape=False`.
        partitioner: A function of shape and dtype that returns the number of parts along each axis; default: that of
            the scope. With parameter servers a variable of several parts lies in so many ranges of rows, if it is
            looked up by rows; the numbers are the same.
        use_resource: Either: there is one kind of variables.
        constraint: Applied after each update by an optimizer.
        synchronization: Of `tf.VariableSynchronization`.
        aggregation: Of `tf.VariableAggregation`.

    Raises:
        StartupOrderError: Outside of a model_fn, with `collections` or in a scope with reuse=True.
        ArgumentError: It exists and is not to be reused, or the other way round; or the shape does not fit.

    Source: tf.compat.v1.get_variable.
    """
    if any(o is not None for o in (caching_device, custom_getter)) or not validate_shape:
        raise UnsupportedError(
            "Variables keep their shape. caching_device, custom_getter and validate_shape=False of get_variable are "
            "TensorFlow's alone; leave them out."
        )
    scope = get_variable_scope()

    def make() -> Any:
        first = scope.initializer if initializer is None else initializer
        kind = as_dtype(dtype or getattr(first, "dtype", None) or scope.dtype)
        chosen, sizes = _initializer(first, shape, kind)
        variable = Variable.from_initializer(chosen, sizes, kind, trainable, name, synchronization, aggregation)
        variable.regularizer = scope.regularizer if regularizer is None else regularizer
        variable.constraint = constraint
        if model_fn_scope() is not None:
            join_collections(variable, collections)
        return variable

    # As TensorFlow in eager mode: nothing keeps variables by their names, so each call makes one.
    call = model_fn_scope()
    if call is None:
        _dividing(partitioner)
        if collections is not None or scope.reuse is True:
            raise StartupOrderError(
                "Outside of a model_fn each call of get_variable makes a variable, which is in no collection. "
                "Received: collections= or reuse=True. Keep the variable in an attribute, and leave them out."
            )
        return make()
    # A variable is made once; its type and initializer are then what they were.
    with _dividing(partitioner):
        shared = find_or_make("Variable", name, None, make)
    # Of one that parameter servers hold by rows, the variable at hand may be a window.
    whole = call.whole_shape_of(shared)
    if shape is not None and whole != dispatch.to_shape(shape):
        raise ArgumentError(f"{name} has shape {whole}. Received: shape={shape!r}.")
    return shared


def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Any:
    """Returns a variable that starts anew in each run, and is in no checkpoint; see `get_variable`.

    Source: tf.compat.v1.get_local_variable.
    """
    collections = [*(kwargs.pop("collections", None) or ()), GraphKeys.LOCAL_VARIABLES]
    return get_variable(name, *args, **{**kwargs, "trainable": False, "collections": collections})


def _initializer(given: Any, shape: ShapeLike, dtype: DTypeLike) -> tuple[Any, tuple[int, ...]]:
    """Returns an initializer, and the shape."""
    if given is not None and not callable(given):
        array = np.asarray(dispatch.to_array(dispatch.HOST, given), dtype.dtype)
        return (lambda shape, dtype: array), array.shape
    if shape is None:
        raise ArgumentError("get_variable needs a shape, or an array as initializer. Received neither.")
    if given is None:
        return ("glorot_uniform" if dtype.is_floating else "zeros"), dispatch.to_shape(shape)
    # A class of initializers, or a function of TensorFlow 1 that makes one, may stand for what it makes.
    makes = inspect.isclass(given) or getattr(given, "__module__", "") == _initializers.__name__
    return (given() if makes else given), dispatch.to_shape(shape)
