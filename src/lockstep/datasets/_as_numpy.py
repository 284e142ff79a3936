"""Datasets as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lockstep._types import PyTree


class NumpyElements:
    """A repeatable iterable over a dataset's elements as NumPy arrays."""

    def __init__(self, dataset: PyTree) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the elements."""
        return iter(self._dataset.as_numpy_iterator())

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._dataset)


def as_numpy(dataset: PyTree) -> Any:
    """Returns datasets and arrays as NumPy (tfds.as_numpy).

    Args:
        dataset: A dataset, an array, or a structure of them in tuples, lists and dicts.

    Returns:
        The same structure; each dataset is an iterable, each array a NumPy array.
    """
    if isinstance(dataset, Mapping):
        return {key: as_numpy(value) for key, value in dataset.items()}
    # A named tuple takes its items as arguments, a tuple as one iterable.
    if isinstance(dataset, tuple) and hasattr(dataset, "_fields"):
        return type(dataset)(*map(as_numpy, dataset))
    if isinstance(dataset, (list, tuple)):
        return type(dataset)(map(as_numpy, dataset))
    if hasattr(dataset, "as_numpy_iterator"):
        return NumpyElements(dataset)
    return dataset if isinstance(dataset, bytes) else np.asarray(dataset)
