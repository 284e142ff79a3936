"""Sequential models whose first layer says the shape of whole batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from lockstep.compat.tensorflow.keras._patches import hidden


def install() -> None:
    """Completes `keras.Sequential`."""
    sequential: Any = keras.Sequential
    sequential.add = _with_batch_shape(sequential.add)
    sequential.input = _of_first_call("input")
    sequential.output = _of_first_call("output")
    sequential._maybe_rebuild = _as_in_keras(sequential._maybe_rebuild)


def _with_batch_shape(theirs: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(theirs)
    def add(self: Any, layer: Any, *args: Any, **kwargs: Any) -> None:
        is_layer = isinstance(layer, keras.layers.Layer)
        shape = hidden.get(layer, hidden.BATCH_SHAPE) if is_layer and not self._layers else None
        if shape is not None:
            theirs(self, keras.layers.InputLayer(batch_shape=shape))
        theirs(self, layer, *args, **kwargs)

    return add


def _of_first_call(side: str) -> property:
    """The tensor that the model was built with; Keras 3 has it only once the model is called."""
    theirs: Any = getattr(keras.Sequential, side)

    def get(self: Any) -> Any:
        is_built = not self._inbound_nodes and self._functional is not None
        return getattr(self._functional, side) if is_built else theirs.fget(self)

    return property(get, doc=theirs.__doc__)


def _as_in_keras(theirs: Callable[[Any], None]) -> Callable[[Any], None]:
    """Keras builds a model at once if its first layer has an `input_shape`, by which it means a functional model."""

    @functools.wraps(theirs)
    def maybe_rebuild(self: Any) -> None:
        with hidden.hiding_shapes():
            theirs(self)

    return maybe_rebuild
