"""`tf.keras.preprocessing`: the functions that make data sets."""

from __future__ import annotations

from lockstep.compat.tensorflow.keras._data_functions import (
    image_dataset_from_directory as image_dataset_from_directory,
)
from lockstep.compat.tensorflow.keras._data_functions import text_dataset_from_directory as text_dataset_from_directory
from lockstep.compat.tensorflow.keras._data_functions import (
    timeseries_dataset_from_array as timeseries_dataset_from_array,
)

__all__ = [
    "image_dataset_from_directory",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
]
