"""Models of users' classes that are built from a shape, as Keras 2 builds them: by their `call`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras.src import backend
from keras.src.layers.layer import might_have_unbuilt_state

from lockstep._types import Model, PyTree
from lockstep.compat.tensorflow.keras._patches._patch import replaces
from lockstep.errors import ArgumentError


@replaces(keras.Model, "build")
def _build(original: Callable[..., None], self: Model, input_shape: PyTree) -> None:
    """Makes the variables of all layers, by `call` on placeholders of float32; Keras 3 makes none of them."""
    # Keras itself asks for it after it has traced `call`, and then nothing is left to do.
    if input_shape is not None and might_have_unbuilt_state(self):
        try:
            backend.compute_output_spec(self.call, _placeholders(input_shape), **_training_of(self))
        except Exception as error:
            raise ArgumentError(
                f"A model is built from shapes by its call() on inputs of float32. Received {input_shape}, and call() "
                f"raised {type(error).__name__}: {error} Call the model on a batch instead of build()."
            ) from error
    original(self, input_shape)


def _placeholders(shape: PyTree) -> Any:
    if isinstance(shape, dict):
        return {key: _placeholders(one) for key, one in shape.items()}
    if not all(size is None or isinstance(size, int) for size in shape):
        return [_placeholders(one) for one in shape]
    return keras.KerasTensor(tuple(shape), dtype="float32")


def _training_of(model: Model) -> dict[str, bool]:
    """Returns `training` for a `call` that has no default of it."""
    training = inspect.signature(model.call).parameters.get("training")
    return {} if training is None or training.default is not inspect.Parameter.empty else {"training": False}
