"""`tf.keras.utils`: functions that Keras 3 dropped, or that need TensorFlow there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import keras

from lockstep.compat.tensorflow._ops.random import start_anew
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._get_file import get_file as get_file
from lockstep.errors import UnsupportedError

__all__ = ["audio_dataset_from_directory", "get_file", "image_dataset_from_directory", "multi_gpu_model"]
__all__ += ["set_random_seed", "text_dataset_from_directory", "timeseries_dataset_from_array"]


def set_random_seed(seed: int) -> None:
    """Makes what follows repeatable: the numbers of Python, numpy, Keras and `tf.random`.

    Source: tf.keras.utils.set_random_seed.
    """
    keras.utils.set_random_seed(seed)
    start_anew(seed)


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
        # Looked up in each call, so that a test can replace it there.
        found = getattr(importlib.import_module("lockstep.data"), name)(*args, **kwargs)
        return tuple(map(_of_tensors, found)) if isinstance(found, tuple) else _of_tensors(found)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns `lockstep.data.{name}` of tensors.\n\nSource: tf.keras.utils.{name}."
    return function


def _of_tensors(dataset: Any) -> Any:
    from lockstep.compat.tensorflow.data._dataset import from_lockstep

    made: Any = from_lockstep(dataset)
    if hasattr(dataset, "class_names"):
        made.class_names = dataset.class_names
    return made


def audio_dataset_from_directory(*args: Argument, **kwargs: Argument) -> Any:
    """Raises an error: sound is read by other libraries.

    Raises:
        UnsupportedError: Always.

    Source: tf.keras.utils.audio_dataset_from_directory.
    """
    raise UnsupportedError(
        "keras.utils.audio_dataset_from_directory is not available. Write the data set with tf.data.Dataset: "
        "list_files, map with tf.audio.decode_wav of tf.io.read_file, padded_batch."
    )


image_dataset_from_directory = _forward("image_dataset_from_directory")
text_dataset_from_directory = _forward("text_dataset_from_directory")
timeseries_dataset_from_array = _forward("timeseries_dataset_from_array")
