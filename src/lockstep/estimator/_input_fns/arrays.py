"""Input functions of rows in memory: numpy arrays and pandas' tables.

Source: tensorflow_estimator/python/estimator/inputs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from lockstep._types import PyTree
from lockstep.data import Dataset, Options, ThreadingOptions
from lockstep.errors import ArgumentError, UnsupportedError


def numpy_input_fn(
    x: np.ndarray[Any, Any] | Mapping[str, np.ndarray[Any, Any]],
    y: np.ndarray[Any, Any] | Mapping[str, np.ndarray[Any, Any]] | None = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Dataset]:
    """Returns an input_fn of arrays, which are not copied.

    Batches go on over the end of an epoch; only the last one of all may be smaller.

    Args:
        x: The features: an array, or a dict of arrays of the same length.
        y: The labels: an array, or a dict of arrays, whose names differ from those of `x`; `None`: none.
        batch_size: Number of rows in a batch.
        num_epochs: Number of passes over the rows; `None` for endless ones.
        shuffle: Whether rows come in random order; must be given.
        queue_capacity: Among how many rows is shuffled; a number from that of the rows up shuffles them all.
        num_threads: Number of threads that compute batches, with `num_epochs=None`; else 1.

    Raises:
        ArgumentError: `shuffle` is missing, lengths differ, a name occurs twice, or a number is out of range.

    Source: tf.compat.v1.estimator.inputs.numpy_input_fn.
    """
    _check_shuffle(shuffle)
    features, labels = _arrays(x, "x"), None if y is None else _arrays(y, "y")
    by_name = features if isinstance(features, dict) else {"x": features}
    labels_by_name = labels if isinstance(labels, dict) else {} if labels is None else {"y": labels}
    twice = sorted(set(by_name) & set(labels_by_name)) if isinstance(labels, dict) else []
    if twice:
        raise ArgumentError(f"{len(twice)} duplicate keys are found in both x and y: {twice}. Rename them in y.")
    columns = {**{f"x {k}": v for k, v in by_name.items()}, **{f"y {k}": v for k, v in labels_by_name.items()}}
    lengths = {column.shape[0] if column.ndim else None for column in columns.values()}
    if len(lengths) != 1 or None in lengths:
        shapes = {name: tuple(column.shape) for name, column in columns.items()}
        raise ArgumentError(
            "Length of tensors in x and y is mismatched. All elements in x and y must have the same length. Received "
            f"shapes: {shapes}."
        )
    rows = features if y is None else (features, labels)
    return _input_fn_of(rows, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def _arrays(value: PyTree, name: str) -> Any:
    if isinstance(value, Mapping):
        if not value:
            raise ArgumentError(f"{name} must not be an empty dict. Received: {value!r}.")
        # Sorted, as TensorFlow's are: features reach the model_fn in this order.
        return {key: _array(value[key], f"{name}[{key!r}]") for key in sorted(value)}
    array = _array(value, name)
    if array.size == 0:
        raise ArgumentError(f"{name} must not be an empty array. Received: shape {array.shape}.")
    return array


def _array(value: PyTree, name: str) -> np.ndarray[Any, Any]:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ArgumentError(
            f"{name} must be an array, or x a dict of arrays. Received: {type(value).__name__}. Use numpy.asarray."
        )
    return np.asarray(value)


def pandas_input_fn(
    x: PyTree,
    y: PyTree | None = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int | None = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Dataset]:
    """Returns an input_fn of a table, of which it takes a copy: a dict of columns, and labels.

    Args:
        x: The features, a pandas.DataFrame.
        y: The labels, with the index of `x`: a pandas.Series, or a pandas.DataFrame, which gives a dict; `None`: none.
        batch_size: See `numpy_input_fn`.
        num_epochs: See `numpy_input_fn`.
        shuffle: See `numpy_input_fn`; required.
        queue_capacity: See `numpy_input_fn`; `None` shuffles all rows.
        num_threads: See `numpy_input_fn`.
        target_column: A name that no column of `x` has, if there is a `y`.

    Raises:
        ArgumentError: `shuffle` is missing, `x` has a column of the name of the target, or the indices differ.
        UnsupportedError: pandas is not installed.

    Source: tf.compat.v1.estimator.inputs.pandas_input_fn.
    """
    try:
        # Not among the requirements of this package.
        pandas: Any = importlib.import_module("pandas")
    except ImportError as error:
        raise UnsupportedError(
            f"pandas_input_fn needs pandas, which is not installed ({error}). Install it, or use numpy_input_fn."
        ) from error
    _check_shuffle(shuffle)
    if not isinstance(x, pandas.DataFrame) or not isinstance(target_column, str):  # pyright: ignore
        raise ArgumentError(
            f"x must be a pandas.DataFrame, and target_column a string. Received: {type(x).__name__} and "
            f"{target_column!r}."
        )
    rows: Any = _columns(x) if y is None else (_columns(x), _labels(pandas, x, y, target_column))
    # TensorFlow shuffles among four times the rows: rows of several epochs mix.
    capacity = max(4 * len(x), 1) if queue_capacity is None else queue_capacity
    return _input_fn_of(rows, batch_size, num_epochs, shuffle, capacity, num_threads)


def _columns(table: PyTree) -> dict[str, np.ndarray[Any, Any]]:
    return {name: table[name].to_numpy(copy=True) for name in table.columns}


def _labels(pandas: Any, x: PyTree, y: PyTree, target_column: str) -> Any:
    if target_column in x:
        raise ArgumentError(
            f"Cannot use name {target_column} for target column: DataFrame already has a column with that name: "
            f"{list(x.columns)}. Give another target_column."
        )
    if not isinstance(y, (pandas.Series, pandas.DataFrame)):
        raise ArgumentError(f"y must be a pandas.Series or a pandas.DataFrame. Received: {type(y).__name__}.")
    if not np.array_equal(x.index, y.index):
        raise ArgumentError(
            f"Index for x and y are mismatched. Received: {x.index} for x and {y.index} for y. Use y.loc[x.index]."
        )
    return _columns(y) if isinstance(y, pandas.DataFrame) else y.to_numpy(copy=True)


def _input_fn_of(
    rows: PyTree, batch_size: object, num_epochs: object, shuffle: object, queue_capacity: object, num_threads: object
) -> Callable[[], Dataset]:
    """Returns an input_fn of a structure of arrays with the same first axis; see `numpy_input_fn` for the others."""
    size, capacity = _count(batch_size, "batch_size"), _count(queue_capacity, "queue_capacity")
    # None of them is an input without examples, as in TensorFlow.
    epochs = None if num_epochs is None else 0 if _is_zero(num_epochs) else _count(num_epochs, "num_epochs")
    threads = _count(num_threads, "num_threads")
    if threads > 1 and epochs is not None:
        raise ArgumentError(
            "num_threads must be 1 where num_epochs is given: in TensorFlow each thread goes through all epochs. "
            f"Received: num_threads={threads} and num_epochs={epochs}. Leave num_threads out, or multiply num_epochs."
        )
    options = Options(threading=ThreadingOptions(private_threadpool_size=None if threads == 1 else threads))

    def input_fn() -> Dataset:
        # repeat before shuffle and batch: TensorFlow's queue mixes epochs in batches and in the shuffle buffer.
        dataset = Dataset.from_tensor_slices(rows).repeat(epochs)
        dataset = dataset.shuffle(capacity) if shuffle else dataset
        # An endless one has no last batch: a static batch size compiles once.
        return dataset.batch(size, drop_remainder=epochs is None).with_options(options)

    return input_fn


def _check_shuffle(shuffle: object) -> None:
    """Raises `ArgumentError` unless the program says whether to shuffle."""
    if not isinstance(shuffle, bool):
        raise ArgumentError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
            f"training). Received: {shuffle!r}."
        )


def _is_zero(value: object) -> bool:
    return isinstance(value, Integral) and value is not False and value == 0


def _count(value: object, name: str) -> int:
    if not isinstance(value, Integral) or value is True or value < 1:
        raise ArgumentError(f"{name} must be a whole number above 0. Received: {value!r}.")
    return int(value)
