"""Input functions of numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lockstep._types import PyTree
from lockstep.data import Dataset
from lockstep.errors import ArgumentError
from lockstep.estimator._input_fns._rows import check_lengths, check_shuffle, input_fn_of


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
    check_shuffle(shuffle)
    features, labels = _arrays(x, "x"), None if y is None else _arrays(y, "y")
    _check(features, labels)
    rows = features if y is None else (features, labels)
    return input_fn_of(rows, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def _arrays(value: PyTree, name: str) -> Any:
    if isinstance(value, Mapping):
        if not value:
            raise ArgumentError(f"{name} must not be an empty dict. Received: {value!r}.")
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


def _check(features: PyTree, labels: PyTree) -> None:
    by_name = features if isinstance(features, dict) else {"x": features}
    own = labels if isinstance(labels, dict) else {} if labels is None else {"y": labels}
    twice = sorted(set(by_name) & set(own)) if isinstance(labels, dict) else []
    if twice:
        raise ArgumentError(f"{len(twice)} duplicate keys are found in both x and y: {twice}. Rename them in y.")
    check_lengths({**{f"x {k}": v for k, v in by_name.items()}, **{f"y {k}": v for k, v in own.items()}})
