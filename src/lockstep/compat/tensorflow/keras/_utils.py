"""`tf.keras.utils`: what Keras 3 dropped, or does only with TensorFlow installed."""

from __future__ import annotations

from typing import Any

from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._data_functions import (
    audio_dataset_from_directory as audio_dataset_from_directory,
)
from lockstep.compat.tensorflow.keras._data_functions import (
    image_dataset_from_directory as image_dataset_from_directory,
)
from lockstep.compat.tensorflow.keras._data_functions import text_dataset_from_directory as text_dataset_from_directory
from lockstep.compat.tensorflow.keras._data_functions import (
    timeseries_dataset_from_array as timeseries_dataset_from_array,
)
from lockstep.errors import UnsupportedError

__all__ = [
    "audio_dataset_from_directory",
    "image_dataset_from_directory",
    "multi_gpu_model",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
]


def multi_gpu_model(*args: Argument, **kwargs: Argument) -> Any:
    """Says what replaced it. Source: `tf.keras.utils.multi_gpu_model`, which TensorFlow removed in 2.4.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(
        "multi_gpu_model is gone, as in TensorFlow 2.4. Create and compile the model under the scope of a strategy: "
        "with lockstep.distribute.MirroredStrategy().scope(): ..."
    )
