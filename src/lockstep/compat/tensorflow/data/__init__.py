"""tf.data: lockstep.data, with tensors that have `numpy()`."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._spec import TensorSpec as TensorSpec
from lockstep.compat.tensorflow.data import _dataset
from lockstep.compat.tensorflow.data._dataset import Dataset as Dataset
from lockstep.compat.tensorflow.data._iterator import Iterator as Iterator
from lockstep.compat.tensorflow.data._options import Options as Options
from lockstep.compat.tensorflow.data._options import ThreadingOptions as ThreadingOptions
from lockstep.data import AUTOTUNE as AUTOTUNE
from lockstep.data import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from lockstep.data import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from lockstep.data import DatasetSpec as DatasetSpec

_LAZY = {"experimental": f"{__name__}.experimental"}
# Classes that are made when they are used, of lockstep.data's classes and this package's.
_FILES = ("FixedLengthRecordDataset", "TFRecordDataset", "TextLineDataset")

__all__ = ["AUTOTUNE", "Dataset", "DatasetSpec", "FixedLengthRecordDataset", "INFINITE_CARDINALITY", "Iterator"]
__all__ += ["Options", "TFRecordDataset", "TensorSpec", "TextLineDataset", "ThreadingOptions", "UNKNOWN_CARDINALITY"]
__all__ += ["experimental"]

_other = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    dataset_class = _dataset.find_dataset_class(name) if name in _FILES else None
    return _other(name) if dataset_class is None else dataset_class


__dir__ = _missing.lister(globals(), {**_LAZY, **dict.fromkeys(_FILES, "")})
