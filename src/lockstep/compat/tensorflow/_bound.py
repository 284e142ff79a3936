"""Names that are bound to lockstep.data's readers, writers, examples and images."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import keras
import numpy as np

from lockstep._nest import map_structure
from lockstep._types import PyTree
from lockstep.compat.tensorflow._tensor import HostTensor, as_tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import UnsupportedError

# Where lockstep.data keeps them.
# In this order: a public name of lockstep.data goes first.
_HOMES = (
    "lockstep.data",
    "lockstep.data._example.features",
    "lockstep.data._example.messages",
    "lockstep.data._example.parse",
    "lockstep.data._example.tensor",
    "lockstep.data._image",
    "lockstep.data._image.decode",
    "lockstep.data._image.encode",
    "lockstep.data._image.resize",
    "lockstep.data._files",
    "lockstep.data._files.tfrecord",
    "lockstep.data._files.csv",
)


def find_in_data(name: str) -> Any:
    """Returns what lockstep.data has under this name, `None` if this version has nothing."""
    for home in _HOMES:
        module = importlib.import_module(home) if _exists(home) else None
        value = getattr(module, name, None)
        if value is not None and not isinstance(value, ModuleType):
            return value
    return None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


# One wrapper for each name, so that tf.io.decode_jpeg is the same object each time.
@functools.cache
def on_host(name: str) -> Callable[..., Any] | None:
    """Returns the function of lockstep.data of that name, that takes and gives tensors; `None` if there is none."""
    function = find_in_data(name)
    if function is None:
        return None

    @functools.wraps(function)
    def call(*args: Argument, **kwargs: Argument) -> Any:
        args, kwargs = map_structure(_to_numpy, (args, kwargs))
        return map_structure(as_tensor, function(*args, **kwargs))

    return call


def _to_numpy(leaf: PyTree) -> Any:
    """Tensors as numpy arrays, or as `bytes` where they are one text."""
    if isinstance(leaf, HostTensor):
        value = leaf.view(np.ndarray)
        return value[()] if value.ndim == 0 else value
    if isinstance(leaf, keras.KerasTensor):
        raise UnsupportedError(
            "Files and records are read on the host. Received a symbolic tensor of Keras; use a tf.data.Dataset."
        )
    return leaf
