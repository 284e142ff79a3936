"""Input functions of pandas' tables."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep._types import PyTree
from lockstep.data import Dataset
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._input_fns._rows import check_shuffle, input_fn_of


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
    pandas = _pandas()
    check_shuffle(shuffle)
    if not isinstance(x, pandas.DataFrame) or not isinstance(target_column, str):  # pyright: ignore
        raise ArgumentError(
            f"x must be a pandas.DataFrame, and target_column a string. Received: {type(x).__name__} and "
            f"{target_column!r}."
        )
    rows: Any = _columns(x) if y is None else (_columns(x), _labels(pandas, x, y, target_column))
    capacity = max(4 * len(x), 1) if queue_capacity is None else queue_capacity
    return input_fn_of(rows, batch_size, num_epochs, shuffle, capacity, num_threads)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise UnsupportedError(
            f"pandas_input_fn needs pandas, which is not installed ({error}). Install it, or use numpy_input_fn."
        ) from error


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
