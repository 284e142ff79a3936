"""Layers, sequential models and variables with the constructor arguments and attributes of Keras 2."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence, ValuesView
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable

from lockstep._types import Layer, Model, PyTree, Tensor, Variable
from lockstep.compat.tensorflow._functions.conversion import convert_call
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import adds, mark, replaces, replaces_property
from lockstep.errors import UnsupportedError

_BATCH_SHAPE = "_lockstep_batch_shape"
_WEIGHT = ("name", "shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
_original_init: Callable[..., None] = keras.layers.Layer.__init__


# Not by `replaces`: Keras compares the signature with the argument list, and this is the argument list it has.
@functools.wraps(_original_init)
def _init_layer(self: Layer, **kwargs: Argument) -> None:
    if not mark(self):
        _original_init(self, **kwargs)
        return
    for cls in type(self).__mro__:
        if not cls.__module__.startswith("keras."):
            convert_call(cls)
    if kwargs.pop("dynamic", False):
        raise UnsupportedError(
            "Layers are compiled: dynamic=True was given. Write call() with keras.ops and leave dynamic out."
        )
    initial = kwargs.pop("weights", None)
    # Keras 3 takes input_shape=, too, but warns that a model should begin with an Input.
    shape, batch_shape = _take_shapes(kwargs)
    _original_init(self, **kwargs)
    if shape is not None:
        self._input_shape_arg = shape
    if batch_shape is not None:
        # Keras' __setattr__ would track it, and save it.
        object.__setattr__(self, _BATCH_SHAPE, batch_shape)
    if initial is not None:
        _set_when_built(self, initial)


keras.layers.Layer.__init__ = _init_layer


def _take_shapes(kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Removes the shapes from a layer's arguments; returns that of an example, and of a batch if its size is fixed."""
    batch_shape = kwargs.pop("batch_input_shape", None)
    shape = kwargs.pop("input_shape", None)
    width = kwargs.pop("input_dim", None)
    if width is not None:
        shape = (width,)
    if batch_shape is None and shape is not None:
        batch_shape = (kwargs.pop("batch_size", None), *shape)
    if batch_shape is None:
        return shape, None
    return tuple(batch_shape[1:]), tuple(batch_shape) if batch_shape[0] is not None else None


def _set_when_built(layer: Layer, initial: PyTree) -> None:
    build = layer.build

    @functools.wraps(build)
    def build_and_set(*args: Argument, **kwargs: Argument) -> None:
        build(*args, **kwargs)
        layer.set_weights(initial)

    if layer.built:
        layer.set_weights(initial)
    else:
        # On the instance: build is called once, when the shapes are known, and the class stays as it is.
        layer.build = build_and_set


@replaces(keras.layers.Layer, "__call__")
def _call(original: Callable[..., Any], self: Layer, *args: Argument, **kwargs: Argument) -> Any:
    """Takes numbers in lists, and views of dicts, for the first input."""
    if args:
        first = args[0]
        if isinstance(first, ValuesView):
            args = (list(first), *args[1:])
        elif isinstance(first, list) and _holds_numbers(first):
            args = (np.asarray(first, keras.config.floatx()), *args[1:])
    return original(self, *args, **kwargs)


def _holds_numbers(values: Any) -> bool:
    while isinstance(values, list) and values:
        values = values[0]
    return type(values) in (int, float)


@replaces(keras.layers.Layer, "set_weights")
def _set_weights(original: Callable[..., None], self: Any, weights: Sequence[Tensor]) -> None:
    """Copies arrays, as TensorFlow: JAX may take their memory as it is, and the program may go on with them."""
    original(self, [value.copy() if type(value) is np.ndarray else value for value in weights])


@replaces(keras.layers.Layer, "add_variable")
def _add_variable(original: Callable[..., Any], self: Layer, *args: Argument, **kwargs: Argument) -> Any:
    """Takes Keras 2's arguments, too, of which `add_weight` has the same."""
    is_older = (bool(args) and isinstance(args[0], str)) or ("initializer" not in kwargs and len(args) < 2)
    return self.add_weight(*args, **kwargs) if is_older else original(self, *args, **kwargs)


@replaces(keras.layers.Layer, "add_weight")
def _add_weight(original: Callable[..., Any], self: Layer, *args: Argument, **kwargs: Argument) -> Any:
    """Takes its arguments in Keras 2's order, too, which begins with the name."""
    # Keras 3's first argument is a shape, of which None is one: add_weight(None, "ones") makes a scalar. Keras 2's is
    # the name, None for none, and then the shape.
    first, second = (*args, None, None)[:2]
    if isinstance(first, str) or (first is None and isinstance(second, (tuple, list, int))):
        kwargs, args = {**dict(zip(_WEIGHT, args, strict=False)), **kwargs}, args[len(_WEIGHT) :]
    return original(self, *args, **kwargs)


_asking = threading.local()


class _ShapeOfCall:
    """Descriptor of the shape that a layer was called with, or returned."""

    def __init__(self, side: str) -> None:
        self._side = side

    def __get__(self, layer: Layer, owner: type | None = None) -> Any:
        if layer is None:
            return self
        # Keras is asking, which knows a functional model by this attribute.
        if getattr(_asking, "hides_shapes", False):
            raise AttributeError(f"{self._side}_shape")
        # Keras 2 has one answer for a layer that is called once, and asks for the index otherwise.
        if len({str(_shape(getattr(node, f"{self._side}_tensors"))) for node in layer._inbound_nodes}) > 1:
            raise AttributeError(
                f"The layer {layer.name!r} was called with several shapes: ask get_{self._side}_shape_at(index)."
            )
        return _shape(getattr(layer, self._side))


def _shape(tensors: PyTree) -> Any:
    return tree.map_structure(lambda tensor: tuple(tensor.shape), tensors)


def _add_attributes_of_calls(side: str) -> None:
    def get_at(self: Layer, node_index: int) -> Any:
        return self._get_node_attribute_at_index(node_index, f"{side}_tensors", side)

    def get_shape_at(self: Layer, node_index: int) -> Any:
        return _shape(get_at(self, node_index))

    adds(keras.layers.Layer, f"{side}_shape")(_ShapeOfCall(side))
    adds(keras.layers.Layer, f"get_{side}_at")(get_at)
    adds(keras.layers.Layer, f"get_{side}_shape_at")(get_shape_at)


_add_attributes_of_calls("input")
_add_attributes_of_calls("output")


@adds(keras.layers.Layer, "reset_states")
def _reset_states(self: Layer) -> None:
    """Resets the state of this layer, or of all layers of this model, that carry one from batch to batch."""
    # Keras 3 has it on stateful layers only.
    if hasattr(self, "reset_state"):
        self.reset_state()
        return
    for layer in self._flatten_layers(include_self=False):
        if hasattr(layer, "reset_state") and getattr(layer, "stateful", False):
            layer.reset_state()


@adds(keras.layers.Layer, "submodules")
@property
def _submodules(self: Layer) -> tuple[Any, ...]:
    """Returns the layers below this one."""
    return tuple(self._flatten_layers(include_self=False, recursive=True))


@replaces(keras.Sequential, "add")
def _add_with_batch_shape(
    original: Callable[..., None], self: Model, layer: Layer, *args: Argument, **kwargs: Argument
) -> None:
    is_first = isinstance(layer, keras.layers.Layer) and not self._layers
    # Keras 2 fixes the size of the batch by the first layer; in Keras 3 only an InputLayer can.
    shape = vars(layer).get(_BATCH_SHAPE) if is_first else None
    if shape is not None:
        original(self, keras.layers.InputLayer(batch_shape=shape))
    original(self, layer, *args, **kwargs)


@replaces_property(keras.Sequential, "input")
def _input(original: Any, self: Model) -> Any:
    # Keras 3 has input and output only once the model is called as a layer.
    return self._functional.input if _is_built_uncalled(self) else original.fget(self)


@replaces_property(keras.Sequential, "output")
def _output(original: Any, self: Model) -> Any:
    return self._functional.output if _is_built_uncalled(self) else original.fget(self)


def _is_built_uncalled(model: Model) -> bool:
    return not model._inbound_nodes and model._functional is not None


@replaces(keras.Sequential, "_maybe_rebuild")
def _rebuild_without_shapes(original: Callable[[Any], None], self: Model) -> None:
    # Keras builds a model at once if its first layer has an `input_shape`, by which it knows a functional model.
    # Sequential models may contain others.
    before = getattr(_asking, "hides_shapes", False)
    _asking.hides_shapes = True
    try:
        original(self)
    finally:
        _asking.hides_shapes = before


def _known_key(variable: Variable) -> str | None:
    # Outside of a model_fn a variable keeps the name that Keras 3 gives it.
    scope = model_fn_scope()
    return None if scope is None else scope.known_key_of(variable)


def _op(self: Variable) -> SimpleNamespace:
    key = _known_key(self)
    if key is None:
        raise AttributeError("A variable has an op in a model_fn only. Use its path.")
    return SimpleNamespace(name=key)


def _change_variable(variable: Any) -> None:
    """Gives variables of a model_fn TensorFlow's names, `dense/kernel:0`."""
    original = variable.name

    # Programs of TensorFlow 1 choose variables by name: [v for v in trainable_variables() if "bias" in v.name].
    def name(self: Variable) -> str:
        key = _known_key(self)
        return original.fget(self) if key is None else f"{key}:0"

    variable.name = property(name, doc=original.__doc__)
    variable.op = property(_op, doc="What has the name without `:0`, in a model_fn.")
    variable.get_shape = lambda self: TensorShape(self.shape)


_change_variable(KerasVariable)
