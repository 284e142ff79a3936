"""tf.compat.v1.python_io: files of records."""

from __future__ import annotations

import importlib as _importlib
import warnings as _warnings
from collections.abc import Iterator as _Iterator
from typing import Any as _Any

from lockstep.compat.tensorflow._missing import getter as _missing_name
from lockstep.compat.tensorflow._types import PathLike as _PathLike

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

_FORWARDED = ("TFRecordOptions", "TFRecordWriter")

__all__ = ["TFRecordCompressionType", "tf_record_iterator"]
__all__ += _FORWARDED

_IO = "lockstep.compat.tensorflow.io"


class TFRecordCompressionType:
    """Ways to compress files of records. Source: tf.compat.v1.python_io.TFRecordCompressionType."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


def tf_record_iterator(path: _PathLike, options: _Any = None) -> _Iterator[bytes]:
    """Yields the records of a file, each as `bytes`.

    Args:
        path: The file.
        options: TFRecordOptions, or how the file is compressed.

    Raises:
        DataNotFoundError: If there is no such file.
        InputError: If it is damaged.

    Source: tf.compat.v1.python_io.tf_record_iterator.
    """
    # Imported late: lockstep.data is not needed to look up a name.
    from lockstep.data import TFRecordDataset

    kind = getattr(options, "compression_type", options)
    names = {None: "", 0: "", 1: "ZLIB", 2: "GZIP"}
    with _warnings.catch_warnings():
        # A file may have no record.
        _warnings.simplefilter("ignore")
        for record in TFRecordDataset(path, compression_type=names.get(kind, kind)):
            yield bytes(record)


_other = _missing_name(__name__)


def __getattr__(name: str) -> _Any:
    # The same classes as tf.io's.
    return getattr(_importlib.import_module(_IO), name) if name in _FORWARDED else _other(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FORWARDED])
