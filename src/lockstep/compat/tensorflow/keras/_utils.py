"""`tf.keras.utils`: functions that Keras 3 dropped, or that need TensorFlow there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._get_file import get_file as get_file
from lockstep.errors import UnsupportedError

__all__ = ["audio_dataset_from_directory", "get_file", "image_dataset_from_directory", "multi_gpu_model"]
__all__ += ["text_dataset_from_directory", "timeseries_dataset_from_array"]

_INSTEAD = "Write the data set with lockstep.data.Dataset: list_files or from_tensor_slices, map, batch."


def multi_gpu_model(*args: Argument, **kwargs: Argument) -> Any:
    """Says what replaced it. Source: `tf.keras.utils.multi_gpu_model`, which TensorFlow removed in 2.4.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(
        "multi_gpu_model is gone, as in TensorFlow 2.4. Create and compile the model under the scope of a strategy: "
        "with lockstep.distribute.MirroredStrategy().scope(): ..."
    )


def _forward(name: str) -> Callable[..., Any]:
    def function(*args: Argument, **kwargs: Argument) -> Any:
        return _find(name)(*args, **kwargs)

    function.__name__ = name
    # `lockstep scan` believes a docstring that begins with an error, so it must tell what this version has.
    present = hasattr(importlib.import_module("lockstep.data"), name)
    function.__doc__ = (
        f"Calls `lockstep.data.{name}`. Source: `tf.keras.utils.{name}`."
        if present
        else f"Raises an error: lockstep.data has no {name}. {_INSTEAD}\n\nSource: `tf.keras.utils.{name}`."
    )
    return function


def _find(name: str) -> Callable[..., Any]:
    try:
        # Looked up in each call, so that a test can replace it there.
        return getattr(importlib.import_module("lockstep.data"), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise UnsupportedError(
            f"keras.utils.{name} needs lockstep.data.{name}, which this version of lockstep lacks. {_INSTEAD}"
        ) from error


audio_dataset_from_directory = _forward("audio_dataset_from_directory")
image_dataset_from_directory = _forward("image_dataset_from_directory")
text_dataset_from_directory = _forward("text_dataset_from_directory")
timeseries_dataset_from_array = _forward("timeseries_dataset_from_array")
