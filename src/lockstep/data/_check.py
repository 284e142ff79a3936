"""Checks of arguments of transformations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.data._options import AUTOTUNE
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.data._dataset import Dataset


def whole(value: Any, name: str) -> int:
    """Returns a whole number.

    Raises:
        ArgumentError: If it is none.
    """
    try:
        return operator.index(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)
    except (TypeError, AttributeError):
        raise ArgumentError(f"{name} must be a whole number. Received: {value!r}.") from None


def at_least(least: int, value: Any, name: str) -> int:
    """Returns a whole number that is not less than `least`.

    Raises:
        ArgumentError: If it is none, or less.
    """
    number = whole(value, name)
    if number < least:
        raise ArgumentError(f"{name} must be at least {least}. Received: {number}.")
    return number


def seed(value: Any) -> int | None:
    """Returns a seed that is not negative, or `None`."""
    return None if value is None else whole(value, "seed") % 2**64


def parallel_calls(value: Any) -> int | None:
    """Returns a number of parallel calls, or `None`; AUTOTUNE is one per core."""
    if value is None:
        return None
    from lockstep.data._pool import cores

    return cores() if value == AUTOTUNE else at_least(1, value, "num_parallel_calls")


def weights(value: Any, count: int) -> Sequence[float]:
    """Returns probabilities that are not all zero, one for each dataset."""
    array = np.asarray(value, np.float64)
    if array.shape != (count,) or not (array >= 0).all() or not 0 < array.sum() < np.inf:
        raise ArgumentError(
            f"weights must be {count} numbers, one for each dataset, not negative and not all 0. Received: {value!r}."
        )
    return array.tolist()


def function(value: Any) -> Callable[..., Any]:
    """Returns a function.

    Raises:
        ArgumentError: If it cannot be called.
    """
    if callable(value):
        return value
    raise ArgumentError(f"A function of an element is needed. Received: {value!r}. Example: lambda x: x + 1")


def dataset(value: Any) -> Dataset:
    """Returns a dataset.

    Raises:
        ArgumentError: If it is none.
    """
    from lockstep.data._dataset import Dataset

    if isinstance(value, Dataset):
        return value
    raise ArgumentError(
        f"A lockstep.data.Dataset is needed. Received: {type(value).__name__}. Make one with "
        "Dataset.from_tensor_slices or Dataset.from_generator."
    )
