"""Layers and sequential models with the constructor arguments and attributes of Keras 2."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

import keras
from keras.src import tree

from lockstep._types import Layer, Model, PyTree
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import UnsupportedError


def install() -> None:
    """Changes `keras.layers.Layer` and `keras.Sequential`."""
    _install_layer()
    _install_sequential()


def _install_layer() -> None:
    layer: Any = keras.layers.Layer
    layer.__init__ = _with_keras2_arguments(layer.__init__)
    layer.add_weight = _with_name_first(layer.add_weight)
    layer.input_shape = _ShapeOfCall("input")
    layer.output_shape = _ShapeOfCall("output")
    layer.get_input_at = _tensors_at("input_tensors")
    layer.get_output_at = _tensors_at("output_tensors")
    layer.get_input_shape_at = _shapes_at("input_tensors")
    layer.get_output_shape_at = _shapes_at("output_tensors")
    layer.reset_states = _reset_states


def _with_keras2_arguments(original: Callable[..., None]) -> Callable[..., None]:
    # Keras compares the signature with the argument list, and this is the argument list it has.
    @functools.wraps(original)
    def __init__(self: Layer, **kwargs: Argument) -> None:
        if kwargs.pop("dynamic", False):
            raise UnsupportedError(
                "Layers are compiled: dynamic=True was given. Write call() with keras.ops and leave dynamic out."
            )
        initial = kwargs.pop("weights", None)
        # Keras 3 takes input_shape=, too, but warns that a model should begin with an Input.
        shape, batch_shape = _shapes_of(kwargs)
        original(self, **kwargs)
        if shape is not None:
            self._input_shape_arg = shape
        if batch_shape is not None:
            _set_untracked(self, _BATCH_SHAPE, batch_shape)
        if initial is not None:
            _set_when_built(self, initial)

    return __init__


def _shapes_of(kwargs: dict[str, Any]) -> tuple[Any, Any]:
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


def _with_name_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `add_weight` take its arguments in Keras 2's order, which begins with the name."""

    @functools.wraps(original)
    def add_weight(self: Layer, *args: Argument, **kwargs: Argument) -> Any:
        if _begins_with_name(args):
            names = ("name", "shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
            kwargs, args = {**dict(zip(names, args, strict=False)), **kwargs}, args[len(names) :]
        return original(self, *args, **kwargs)

    return add_weight


def _begins_with_name(args: tuple[Any, ...]) -> bool:
    # Keras 3's first argument is a shape, of which None is one: add_weight(None, "ones") makes a scalar. Keras 2's is
    # the name, None for none, and then the shape.
    first, second = (*args, None, None)[:2] if args else (None, None)
    return isinstance(first, str) or (first is None and isinstance(second, (tuple, list, int)))


class _ShapeOfCall:
    """Descriptor of the shape that a layer was called with, or returned."""

    def __init__(self, side: str) -> None:
        self._side = side

    def __get__(self, layer: Layer, owner: type | None = None) -> Any:
        if layer is None:
            return self
        if _shapes_are_hidden():
            raise AttributeError(f"{self._side}_shape")
        # Keras 2 has one answer for a layer that is called once, and asks for the index otherwise.
        if len({str(_shapes(node, self._side)) for node in layer._inbound_nodes}) > 1:
            raise AttributeError(
                f"The layer {layer.name!r} was called with several shapes: ask get_{self._side}_shape_at(index)."
            )
        return _shape(getattr(layer, self._side))


def _shapes(node: Any, side: str) -> Any:
    return _shape(getattr(node, f"{side}_tensors"))


def _shape(tensors: PyTree) -> Any:
    return tree.map_structure(lambda tensor: tuple(tensor.shape), tensors)


def _tensors_at(attribute: str) -> Callable[[Any, int], Any]:
    def get_at(self: Layer, node_index: int) -> Any:
        return self._get_node_attribute_at_index(node_index, attribute, attribute.partition("_")[0])

    return get_at


def _shapes_at(attribute: str) -> Callable[[Any, int], Any]:
    get = _tensors_at(attribute)
    return lambda self, node_index: _shape(get(self, node_index))


def _reset_states(self: Layer) -> None:
    """Resets the state of this layer, or of all layers of this model, that carry one from batch to batch."""
    # Keras 3 has it on stateful layers only.
    if hasattr(self, "reset_state"):
        self.reset_state()
        return
    for layer in self._flatten_layers(include_self=False):
        if hasattr(layer, "reset_state") and getattr(layer, "stateful", False):
            layer.reset_state()


def _install_sequential() -> None:
    sequential: Any = keras.Sequential
    sequential.add = _with_batch_shape(sequential.add)
    sequential.input = _make_tensor_property("input")
    sequential.output = _make_tensor_property("output")
    sequential._maybe_rebuild = _without_shapes(sequential._maybe_rebuild)


def _with_batch_shape(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def add(self: Model, layer: Layer, *args: Argument, **kwargs: Argument) -> None:
        is_layer = isinstance(layer, keras.layers.Layer)
        # Keras 2 fixes the size of the batch by the first layer; in Keras 3 only an InputLayer can.
        shape = _get_untracked(layer, _BATCH_SHAPE) if is_layer and not self._layers else None
        if shape is not None:
            original(self, keras.layers.InputLayer(batch_shape=shape))
        original(self, layer, *args, **kwargs)

    return add


def _make_tensor_property(side: str) -> property:
    """Returns the property that has the tensor with which a model was built."""
    original: Any = getattr(keras.Sequential, side)

    def get(self: Model) -> Any:
        # Keras 3 has input and output only once the model is called as a layer.
        is_built = not self._inbound_nodes and self._functional is not None
        return getattr(self._functional, side) if is_built else original.fget(self)

    return property(get, doc=original.__doc__)


def _without_shapes(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Hides the shapes of plain layers from Keras while it decides whether to build a model."""

    @functools.wraps(original)
    def maybe_rebuild(self: Model) -> None:
        # Keras builds a model at once if its first layer has an `input_shape`, by which it knows a functional model.
        with _hiding_shapes():
            original(self)

    return maybe_rebuild


_BATCH_SHAPE = "_lockstep_batch_shape"

_local = threading.local()


def _set_untracked(owner: Layer, name: str, value: object) -> None:
    """Sets an attribute that Keras does not track."""
    # Keras' __setattr__ would track it, and save it.
    object.__setattr__(owner, name, value)


def _get_untracked(owner: Layer, name: str) -> Any:
    """Returns an attribute that Keras does not track, or None."""
    return vars(owner).get(name)


@contextlib.contextmanager
def _hiding_shapes() -> Generator[None]:
    """Hides `input_shape` and `output_shape` of plain layers while it is open."""
    # Sequential models may contain others.
    before = _shapes_are_hidden()
    _local.hides = True
    try:
        yield
    finally:
        _local.hides = before


def _shapes_are_hidden() -> bool:
    """Returns whether Keras is asking by the absence of these attributes."""
    return getattr(_local, "hides", False)
