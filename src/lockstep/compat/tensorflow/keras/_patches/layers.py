"""Layers and sequential models with the constructor arguments and attributes of Keras 2."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

import keras
from keras.src import tree

from lockstep._types import Layer, Model, PyTree, Tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import UnsupportedError


def install() -> None:
    """Changes `keras.layers.Layer` and `keras.Sequential`."""
    _install_layer()
    _install_sequential()


def _install_layer() -> None:
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
    def __init__(self: Layer, **kwargs: Argument) -> None:
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
            _set_untracked(self, _BATCH_SHAPE, batch_shape)
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


def _set_when_built(layer: Layer, initial: PyTree) -> None:
    build = layer.build

    @functools.wraps(build)
    def build_and_set(*args: Argument, **kwargs: Argument) -> None:
        build(*args, **kwargs)
        layer.set_weights(initial)

    if layer.built:
        layer.set_weights(initial)
    else:
        layer.build = build_and_set


def _naming_first(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Keras 2's first arguments are name, shape, dtype, initializer; Keras 3's are shape, initializer, dtype."""

    @functools.wraps(theirs)
    def add_weight(self: Layer, *args: Argument, **kwargs: Argument) -> Any:
        if args and (args[0] is None or isinstance(args[0], str)):
            names = ("name", "shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
            kwargs, args = {**dict(zip(names, args, strict=False)), **kwargs}, args[len(names) :]
        return theirs(self, *args, **kwargs)

    return add_weight


class _OfCall:
    """The shape of what a layer was called with, or returned; a class that has its own attribute keeps it."""

    def __init__(self, side: str) -> None:
        self._side = side

    def __get__(self, layer: Layer, owner: type | None = None) -> Any:
        if layer is None:
            return self
        if _shapes_are_hidden():
            raise AttributeError(f"{self._side}_shape")
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
    if hasattr(self, "reset_state"):
        self.reset_state()
        return
    for layer in self._flatten_layers(include_self=False):
        if hasattr(layer, "reset_state") and getattr(layer, "stateful", False):
            layer.reset_state()


def _install_sequential() -> None:
    """Completes `keras.Sequential`."""
    sequential: Any = keras.Sequential
    sequential.add = _with_batch_shape(sequential.add)
    sequential.input = _of_first_call("input")
    sequential.output = _of_first_call("output")
    sequential._maybe_rebuild = _as_in_keras(sequential._maybe_rebuild)


def _with_batch_shape(theirs: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(theirs)
    def add(self: Model, layer: Layer, *args: Argument, **kwargs: Argument) -> None:
        is_layer = isinstance(layer, keras.layers.Layer)
        shape = _get_untracked(layer, _BATCH_SHAPE) if is_layer and not self._layers else None
        if shape is not None:
            theirs(self, keras.layers.InputLayer(batch_shape=shape))
        theirs(self, layer, *args, **kwargs)

    return add


def _of_first_call(side: str) -> property:
    """The tensor that the model was built with; Keras 3 has it only once the model is called."""
    theirs: Any = getattr(keras.Sequential, side)

    def get(self: Model) -> Any:
        is_built = not self._inbound_nodes and self._functional is not None
        return getattr(self._functional, side) if is_built else theirs.fget(self)

    return property(get, doc=theirs.__doc__)


def _as_in_keras(theirs: Callable[[Any], None]) -> Callable[[Any], None]:
    """Keras builds a model at once if its first layer has an `input_shape`, by which it means a functional model."""

    @functools.wraps(theirs)
    def maybe_rebuild(self: Model) -> None:
        with _hiding_shapes():
            theirs(self)

    return maybe_rebuild


_BATCH_SHAPE = "_lockstep_batch_shape"

_local = threading.local()


def _set_untracked(owner: Any, name: str, value: Tensor) -> None:
    """Sets an attribute that Keras does not track."""
    object.__setattr__(owner, name, value)


def _get_untracked(owner: Any, name: str) -> Any:
    """Returns what was `put`, or None."""
    return vars(owner).get(name)


@contextlib.contextmanager
def _hiding_shapes() -> Generator[None]:
    """While open, `input_shape` and `output_shape` of plain layers are as absent as they are in Keras 3."""
    before = _shapes_are_hidden()
    _local.hides = True
    try:
        yield
    finally:
        _local.hides = before


def _shapes_are_hidden() -> bool:
    """Whether Keras is asking a question that it decides by the absence of these attributes."""
    return getattr(_local, "hides", False)
