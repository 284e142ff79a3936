"""Layers that take text: they compute on the host, and in a symbolic call give placeholders."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._tensor import HostTensor, as_host, constant_array, to_text
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import ArgumentError, UnsupportedError

_BATCH = 32


class HostLayer(keras.layers.Layer):
    """A layer without weights whose result is computed with numpy where its input is known.

    A derived class has `compute(values)`, which maps an array to an array, and `symbolic_shape(shape)`, which maps
    shapes with unknown sizes. Called on what Keras or JAX traces it gives a symbolic tensor, or raises an error.

    Args:
        **kwargs: Those of every layer.
    """

    def __init__(self, **kwargs: Argument) -> None:
        super().__init__(**kwargs)
        # Keras would make JAX's arrays of the inputs, which hold no text.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    def __call__(self, inputs: Tensor, *args: Argument, **kwargs: Argument) -> Any:
        """Returns the result of values as a tensor of the host, of symbolic tensors as a symbolic tensor."""
        if isinstance(inputs, keras.KerasTensor):
            return super().__call__(inputs, *args, **kwargs)
        return self.call(inputs)

    def call(self, inputs: Tensor) -> Any:
        """Returns the result for values.

        Raises:
            UnsupportedError: If JAX is compiling what calls it.
        """
        if isinstance(inputs, Tracer):
            raise UnsupportedError(
                f"{type(self).__name__} looks text up on the host, and this code is being compiled by JAX. Make the "
                "layer part of a functional or sequential model, or call it in the data set: "
                "dataset.map(lambda x, y: (layer(x), y))."
            )
        return as_host(self.compute(to_values(inputs)))

    @abc.abstractmethod
    def compute(self, values: np.ndarray) -> np.ndarray:
        """Returns the result for an array of numbers, or of `bytes` objects."""

    def symbolic_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the result for an input of a shape, in which None stands for an unknown size."""
        return shape

    def result_dtype(self) -> str:
        """Returns the dtype of the result."""
        return "int64"

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the result."""
        return self.symbolic_shape(tuple(input_shape))

    def compute_output_spec(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Returns the placeholder of the result."""
        return keras.KerasTensor(self.symbolic_shape(tuple(inputs.shape)), dtype=self.result_dtype())


def to_values(inputs: Tensor) -> np.ndarray:
    """Returns inputs (arrays, tensors, lists, frames' columns) as an array of numbers or of `bytes` objects."""
    if isinstance(inputs, HostTensor):
        return inputs.view(np.ndarray)
    if isinstance(inputs, (list, tuple)) and any(isinstance(e, (list, tuple)) for e in inputs):
        sizes = {len(e) if isinstance(e, (list, tuple)) else -1 for e in inputs}
        if len(sizes) > 1:
            raise ArgumentError(
                f"Lists must be rectangular: received rows of {sorted(sizes)} elements. Pad them to one length."
            )
    to_numpy = getattr(inputs, "to_numpy", None)
    if to_numpy is not None:
        inputs = to_numpy()
    array = constant_array(inputs) if isinstance(inputs, (list, tuple, str, bytes)) else np.asarray(inputs)
    if array.dtype.kind in "SUO":
        return np.asarray(to_text(array)).view(np.ndarray)
    # StringDType of numpy 2.
    return to_text(array.astype(object)) if array.dtype.kind == "T" else array


def batches_of(data: Any, steps: int | None = None, batch_size: int | None = None) -> Iterable[np.ndarray]:
    """Iterates over the batches of what `adapt` is given.

    Args:
        data: A dataset, whose elements are batches, also `(x, y)`; or an array, a list or a frame of examples.
        steps: How many batches are taken. Default: all.
        batch_size: The size of batches of arrays. Default: 32, as in Keras 2.
    """
    if hasattr(data, "element_spec"):
        source: Any = data.as_numpy_iterator() if hasattr(data, "as_numpy_iterator") else data
        batches = (to_values(element[0] if isinstance(element, tuple) else element) for element in source)
    elif isinstance(data, Iterator):
        batches = (to_values(element) for element in data)
    else:
        values, size = np.atleast_1d(to_values(data)), batch_size or _BATCH
        batches = (values[at : at + size] for at in range(0, len(values), size))
    yield from itertools.islice(batches, steps)
