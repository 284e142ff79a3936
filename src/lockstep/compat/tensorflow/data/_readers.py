"""Datasets of files and data bases, and batches of them, whose elements are tensors."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import lockstep.data as _data
from lockstep._types import PyTree
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import PathLike
from lockstep.compat.tensorflow.data._dataset import Dataset, from_lockstep
from lockstep.data.internal import make_batched_features_dataset as _make_batched_features
from lockstep.errors import ArgumentError

__all__ = ["SqlDataset", "TFRecordWriter", "make_batched_features_dataset", "make_csv_dataset"]


@functools.wraps(_data.make_csv_dataset)
def make_csv_dataset(*args: Any, **kwargs: Any) -> Dataset:
    """Returns `lockstep.data.make_csv_dataset` of tensors."""
    return from_lockstep(_data.make_csv_dataset(*args, **kwargs))


@functools.wraps(_make_batched_features)
def make_batched_features_dataset(
    file_pattern: PyTree,
    batch_size: int,
    features: PyTree,
    reader: Callable[..., Any] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Dataset:
    """Returns batches of the features of serialised examples, as tensors."""
    read = None if reader is None else lambda name, *more: reader(as_host(name), *more)
    return from_lockstep(_make_batched_features(file_pattern, batch_size, features, read, *args, **kwargs))


class SqlDataset(Dataset):
    """The rows that a query of a data base gives, tuples of scalars.

    Source: tf.data.experimental.SqlDataset.
    """

    def __init__(self, driver_name: str, data_source_name: PathLike, query: str, output_types: Sequence[Any]) -> None:
        """Creates the dataset.

        Args:
            driver_name: "sqlite".
            data_source_name: The file of the data base.
            query: The query, which is asked anew in each pass; it must have an order to be resumed.
            output_types: The types of the columns.

        Raises:
            ArgumentError: If the driver is another one.
        """
        if _text(driver_name) != "sqlite":
            raise ArgumentError(f'driver_name must be "sqlite". Received: {driver_name!r}. Convert the data base.')
        dtypes = [as_dtype(kind).dtype for kind in output_types]
        source, statement = _text(data_source_name), _text(query)

        def rows() -> Iterator[tuple[Any, ...]]:
            with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as connection:
                for row in connection.execute(statement):
                    if len(row) != len(dtypes):
                        raise ArgumentError(
                            f"The number of columns in output_types ({len(dtypes)}) must be that of the query's result "
                            f"({len(row)})."
                        )
                    yield tuple(_as_column(value, dtype) for value, dtype in zip(row, dtypes, strict=True))

        signature = tuple(_data.TensorSpec((), dtype) for dtype in dtypes)
        made = Dataset.from_generator(rows, output_signature=signature)
        self._set_plan(made._plan)  # pyright: ignore[reportPrivateUsage]


def _text(value: PyTree) -> str:
    plain = value.numpy() if hasattr(value, "numpy") else value
    return plain.decode() if isinstance(plain, bytes) else str(plain)


def _as_column(value: Any, dtype: np.dtype[Any]) -> Any:
    """Converts a value of SQLite to a column's type: NULL is 0 or no text, as in TensorFlow."""
    if dtype.kind == "O":
        return b"" if value is None else value if isinstance(value, bytes) else str(value).encode()
    return np.asarray(0 if value is None else value).astype(dtype)[()]


class TFRecordWriter:
    """A writer of a dataset of text to a TFRecord file. Source: tf.data.experimental.TFRecordWriter."""

    def __init__(self, filename: PathLike, compression_type: str | None = None) -> None:
        """Creates the writer of a file; the compression is "" or None, "GZIP" or "ZLIB"."""
        self._filename = _text(filename)
        self._compression = compression_type

    def write(self, dataset: Dataset) -> None:
        """Writes all elements, each a record.

        Raises:
            ArgumentError: If they are no scalars of text; it is a `TypeError`, too.
        """
        if not isinstance(dataset, _data.Dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WriterTypeError(f"A dataset is needed. Received: {type(dataset).__name__}.")
        if dataset.element_spec != _data.TensorSpec((), object):
            raise WriterTypeError(
                f"The elements must be scalars of text. Received: {dataset.element_spec}. Serialise them with "
                "map first."
            )
        with _data.TFRecordWriter(self._filename, self._compression or None) as writer:
            for record in dataset.as_numpy_iterator():
                writer.write(record)


class WriterTypeError(ArgumentError, TypeError):
    """An attempt to write something else than a dataset of text."""
