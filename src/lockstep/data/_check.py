"""Checks of the arguments of transformations. Each returns the value in its own type, or raises `ArgumentError`."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._blocks import cores
from lockstep.data._options import AUTOTUNE
from lockstep.errors import ArgumentError


def integer(value: ArrayLike, name: str) -> int:
    """Returns an integer; an array of shape () is one, too, as TensorFlow's tensors are."""
    try:
        return operator.index(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)
    except (TypeError, AttributeError):
        raise ArgumentError(f"{name} must be a whole number. Received: {value!r}.") from None


def at_least(least: int, value: ArrayLike, name: str) -> int:
    """Returns an integer that is not less than `least`."""
    number = integer(value, name)
    if number < least:
        raise ArgumentError(f"{name} must be at least {least}. Received: {number}. Example: {name}={max(least, 1)}")
    return number


def batch_sizes(value: ArrayLike) -> list[int]:
    """Returns one or more batch sizes, each at least 1."""
    sizes = [at_least(1, size, "batch_size") for size in np.atleast_1d(value).tolist()]
    if not sizes:
        raise ArgumentError("batch_size must be a whole number, or several of them. Received: none.")
    return sizes


def integer_range(*args: ArrayLike) -> range:
    """Returns the range of (stop), (start, stop) or (start, stop, step)."""
    bounds = [integer(a, "Each argument of range") for a in args]
    if not 1 <= len(bounds) <= 3 or bounds[2:] == [0]:
        raise ArgumentError(
            f"range takes stop, or start and stop, or start, stop and a step other than 0. Received: {args}."
        )
    return range(*bounds)


def seed(value: ArrayLike | None) -> int | None:
    """Returns a seed that is not negative, or `None`."""
    # numpy's SeedSequence refuses negative integers, which TensorFlow takes.
    return None if value is None else integer(value, "seed") % 2**64


def parallel_calls(value: ArrayLike | None) -> int | None:
    """Returns a number of parallel calls, or `None`; AUTOTUNE is one per core."""
    if value is None:
        return None
    return cores() if value == AUTOTUNE else at_least(1, value, "num_parallel_calls")


def weights(value: ArrayLike, count: int, name: str = "weights") -> Sequence[float]:
    """Returns weights that are not all zero, one for each of `count` datasets."""
    array = np.asarray(value, np.float64)
    if array.shape != (count,) or not (array >= 0).all() or not 0 < array.sum() < np.inf:
        raise ArgumentError(
            f"{name} must be {count} numbers, one for each, not negative and not all 0. Received: {value!r}."
        )
    return array.tolist()
