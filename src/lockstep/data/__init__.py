"""Input: tf.data's programming model, as plans with exact positions.

Everything here works without a strategy. Pass a `Dataset` of batches to Keras' `fit`, `evaluate` and `predict`, or to
`Strategy.experimental_distribute_dataset`.
"""

from __future__ import annotations

from lockstep.data import _keras_adapter
from lockstep.data._csv_batches import make_csv_dataset as make_csv_dataset
from lockstep.data._dataset import Dataset as Dataset
from lockstep.data._dataset_base import before_first_dataset as _before_first_dataset
from lockstep.data._file_datasets import ArrayRecordDataset as ArrayRecordDataset
from lockstep.data._file_datasets import CsvDataset as CsvDataset
from lockstep.data._file_datasets import FixedLengthRecordDataset as FixedLengthRecordDataset
from lockstep.data._file_datasets import ParquetDataset as ParquetDataset
from lockstep.data._file_datasets import TextLineDataset as TextLineDataset
from lockstep.data._file_datasets import TFRecordDataset as TFRecordDataset
from lockstep.data._files.tfrecord import TFRecordOptions as TFRecordOptions
from lockstep.data._files.tfrecord import TFRecordWriter as TFRecordWriter
from lockstep.data._image_folder import image_dataset_from_directory as image_dataset_from_directory
from lockstep.data._iterator import DatasetIterator as DatasetIterator
from lockstep.data._map_program import numpy_function as numpy_function
from lockstep.data._map_program import py_function as py_function
from lockstep.data._options import AUTOTUNE as AUTOTUNE
from lockstep.data._options import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from lockstep.data._options import SHARD_HINT as SHARD_HINT
from lockstep.data._options import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from lockstep.data._options import AutoShardPolicy as AutoShardPolicy
from lockstep.data._options import DistributeOptions as DistributeOptions
from lockstep.data._options import InputContext as InputContext
from lockstep.data._options import Options as Options
from lockstep.data._options import ThreadingOptions as ThreadingOptions
from lockstep.data._spec import DatasetSpec as DatasetSpec
from lockstep.data._spec import TensorSpec as TensorSpec
from lockstep.data._text_folder import text_dataset_from_directory as text_dataset_from_directory
from lockstep.data._timeseries import timeseries_dataset_from_array as timeseries_dataset_from_array

_before_first_dataset(_keras_adapter.install)

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "ArrayRecordDataset",
    "AutoShardPolicy",
    "CsvDataset",
    "Dataset",
    "DatasetIterator",
    "DatasetSpec",
    "DistributeOptions",
    "FixedLengthRecordDataset",
    "InputContext",
    "Options",
    "ParquetDataset",
    "TFRecordDataset",
    "TFRecordOptions",
    "TFRecordWriter",
    "TensorSpec",
    "TextLineDataset",
    "ThreadingOptions",
    "image_dataset_from_directory",
    "make_csv_dataset",
    "numpy_function",
    "py_function",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
]
