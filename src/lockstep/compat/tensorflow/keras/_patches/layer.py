"""Layers with the constructor arguments and attributes of Keras 2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras.src import tree

from lockstep.compat.tensorflow.keras._patches import hidden
from lockstep.errors import UnsupportedError


def install() -> None:
    """Completes `keras.layers.Layer`."""
    layer: Any = keras.layers.Layer
    layer.__init__ = _accepting(layer.__init__)
    layer.add_weight = _naming_first(layer.add_weight)
    layer.input_shape = _OfCall("input")
    layer.output_shape = _OfCall("output")
    layer.get_input_at = _tensors_at("input_tensors")
    layer.get_output_at = _tensors_at("output_tensors")
    layer.get_input_shape_at = _shapes_at("input_tensors")
    layer.get_output_shape_at = _shapes_at("output_tensors")
    layer.reset_states = _reset_states


def _accepting(theirs: Callable[..., None]) -> Callable[..., None]:
    # Keras compares the signature with the argument list, and this is the argument list it has.
    @functools.wraps(theirs)
    def __init__(self: Any, **kwargs: Any) -> None:
        if kwargs.pop("dynamic", False):
            raise UnsupportedError(
                "Layers are compiled: dynamic=True was given. Write call() with keras.ops and leave dynamic out."
            )
        initial = kwargs.pop("weights", None)
        shape, batch_shape = _shapes_of(kwargs)
        theirs(self, **kwargs)
        if shape is not None:
            self._input_shape_arg = shape
        if batch_shape is not None:
            hidden.put(self, hidden.BATCH_SHAPE, batch_shape)
        if initial is not None:
            _set_when_built(self, initial)

    return __init__


def _shapes_of(kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Takes the shape of one example, and of a batch if its size is fixed, out of a layer's arguments."""
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


def _set_when_built(layer: Any, initial: Any) -> None:
    build = layer.build

    @functools.wraps(build)
    def build_and_set(*args: Any, **kwargs: Any) -> None:
        build(*args, **kwargs)
        layer.set_weights(initial)

    if layer.built:
        layer.set_weights(initial)
    else:
        layer.build = build_and_set


def _naming_first(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Keras 2's first arguments are name, shape, dtype, initializer; Keras 3's are shape, initializer, dtype."""

    @functools.wraps(theirs)
    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and (args[0] is None or isinstance(args[0], str)):
            names = ("name", "shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
            kwargs, args = {**dict(zip(names, args, strict=False)), **kwargs}, args[len(names) :]
        return theirs(self, *args, **kwargs)

    return add_weight


class _OfCall:
    """The shape of what a layer was called with, or returned; a class that has its own attribute keeps it."""

    def __init__(self, side: str) -> None:
        self._side = side

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        if hidden.shapes_are_hidden():
            raise AttributeError(f"{self._side}_shape")
        if len({str(_shapes(node, self._side)) for node in layer._inbound_nodes}) > 1:
            raise AttributeError(
                f"The layer {layer.name!r} was called with several shapes: ask get_{self._side}_shape_at(index)."
            )
        return _shape(getattr(layer, self._side))


def _shapes(node: Any, side: str) -> Any:
    return _shape(getattr(node, f"{side}_tensors"))


def _shape(tensors: Any) -> Any:
    return tree.map_structure(lambda tensor: tuple(tensor.shape), tensors)


def _tensors_at(attribute: str) -> Callable[[Any, int], Any]:
    def get_at(self: Any, node_index: int) -> Any:
        return self._get_node_attribute_at_index(node_index, attribute, attribute.partition("_")[0])

    return get_at


def _shapes_at(attribute: str) -> Callable[[Any, int], Any]:
    get = _tensors_at(attribute)
    return lambda self, node_index: _shape(get(self, node_index))


def _reset_states(self: Any) -> None:
    """Resets the state of this layer, or of all layers of this model, that carry one from batch to batch."""
    if hasattr(self, "reset_state"):
        self.reset_state()
        return
    for layer in self._flatten_layers(include_self=False):
        if hasattr(layer, "reset_state") and getattr(layer, "stateful", False):
            layer.reset_state()
