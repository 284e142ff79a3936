"""Checks of arguments of transformations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._nest import canonical
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


def sizes(value: Any) -> list[int]:
    """Returns one or more sizes of batches.

    Raises:
        ArgumentError: If there is none, or one is less than 1.
    """
    found = [at_least(1, size, "batch_size") for size in np.atleast_1d(value).tolist()]
    if not found:
        raise ArgumentError("batch_size must be a whole number, or several of them. Received: none.")
    return found


def numbers(*args: Any) -> range:
    """Returns the range with these arguments: stop, or start and stop, or start, stop and step.

    Raises:
        ArgumentError: If there is no such range.
    """
    found = [whole(a, "Each argument of range") for a in args]
    if not 1 <= len(found) <= 3 or found[2:] == [0]:
        raise ArgumentError(
            f"range takes stop, or start and stop, or start, stop and a step other than 0. Received: {args}."
        )
    return range(*found)


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


def structure_of_datasets(args: tuple[Any, ...], datasets: Any) -> tuple[list[Dataset], Any]:
    """Returns the datasets that `zip` was given, and the structure that holds them.

    Raises:
        ArgumentError: If there is none, something else, or a list.
    """
    if bool(args) == (datasets is not None):
        raise ArgumentError("zip needs datasets, as arguments or as datasets=. Received: both, or neither.")
    given = datasets if not args else (args[0] if len(args) == 1 else args)
    leaves, structure = jax.tree.flatten(canonical(given), is_leaf=lambda v: isinstance(v, list))
    if not leaves:
        raise ArgumentError(f"zip needs at least one dataset. Received: {given!r}.")
    return [dataset(leaf) for leaf in leaves], structure


def several(datasets: Sequence[Any]) -> list[Dataset]:
    """Returns one or more datasets.

    Raises:
        ArgumentError: If there is none, or something else.
    """
    if not len(datasets):
        raise ArgumentError("datasets must hold at least one dataset. Received: none.")
    return [dataset(d) for d in datasets]


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
