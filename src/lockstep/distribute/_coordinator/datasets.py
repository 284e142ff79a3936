"""Datasets of a coordinator: an iterator for each worker, whose elements travel with the functions that take them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from lockstep._nest import map_structure
from lockstep.distribute._values import DistributedValues
from lockstep.errors import ArgumentError, EndOfDataError, UnsupportedError


class PerWorkerDataset:
    """A dataset of which each worker has its own passes; `ClusterCoordinator.create_per_worker_dataset` makes it.

    Source: tf.distribute.coordinator.ClusterCoordinator.create_per_worker_dataset.
    """

    def __init__(self, make: Callable[[], Any], workers: int) -> None:
        self._make, self._workers = make, workers
        self._first = make()

    @property
    def element_spec(self) -> Any:
        """The spec of the elements."""
        return self._first.element_spec

    def __iter__(self) -> PerWorkerIterator:
        """Returns an iterator for each worker, as one."""
        first = self._first
        return PerWorkerIterator(lambda number: first if number == 0 else self._make(), self._workers)


class PerWorkerIterator:
    """An iterator of each worker: an argument of scheduled functions, in which `next` returns elements."""

    def __init__(self, dataset_of: Callable[[int], Any], workers: int) -> None:
        self._iterators = [WorkerIterator(dataset_of, number) for number in range(workers)]

    def __iter__(self) -> PerWorkerIterator:
        """Returns itself."""
        return self

    def __next__(self) -> Any:
        """Refuses: elements are for workers.

        Raises:
            UnsupportedError: In any case.
        """
        raise UnsupportedError(
            "The elements of a per-worker dataset are for scheduled functions. Received: next(iterator) on the "
            "coordinator. Pass the iterator to ClusterCoordinator.schedule, and call next in the function."
        )

    def get_next(self) -> Any:
        """Refuses, as `next` does."""
        return next(self)

    def of_worker(self, worker: int) -> WorkerIterator:
        """Returns the iterator of a worker."""
        return self._iterators[worker]


class WorkerIterator:
    """Passes over a dataset for one worker, of which coming elements can be seen before they are drawn.

    Args:
        dataset_of: Returns the dataset of a worker, by its number.
        worker: The number.
    """

    def __init__(self, dataset_of: Callable[[int], Any], worker: int) -> None:
        self._dataset_of, self._worker = dataset_of, worker
        self._iterator: Iterator[Any] | None = None
        self._coming: deque[Any] = deque()
        self._last: Any = None
        self._lock = threading.Lock()

    def peek(self, number: int) -> Any:
        """Returns one of the coming elements, to trace a function for its kind.

        Where data end before it that is the last element: other workers may have more, and a function that draws at
        the end fails when it is computed, not when it is scheduled.

        Raises:
            EndOfDataError: If there has been no element at all.
        """
        with self._lock:
            while len(self._coming) <= number:
                try:
                    self._coming.append(self._read())
                except EndOfDataError:
                    if self._last is None:
                        raise
                    return self._last
            return self._coming[number]

    def draw(self, count: int) -> list[Any]:
        """Returns the next elements: all, or none where data end.

        Raises:
            EndOfDataError: If there are not so many.
        """
        with self._lock:
            while len(self._coming) < count:
                self._coming.append(self._read())
            return [self._coming.popleft() for _ in range(count)]

    def _read(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._dataset_of(self._worker))
        try:
            element = next(self._iterator)
        except StopIteration:
            raise EndOfDataError(
                "A scheduled function draws elements that there are. Received: one that calls next at the end of the "
                "data. Repeat the dataset, and schedule a certain number of steps."
            ) from None
        self._last = map_structure(_on_host, element, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))
        return self._last


def _on_host(leaf: Any) -> Any:
    """Returns a leaf of an element as an array of the host, which travels."""
    if isinstance(leaf, DistributedValues):
        # The shares of a batch, for the devices that this process has: together they are the batch.
        shares = [np.asarray(value) for value in leaf.values]
        leaf = np.concatenate(shares) if shares[0].ndim else shares[0]
    if isinstance(leaf, (jax.Array, str, bytes)) or hasattr(leaf, "__array__"):
        leaf = np.asarray(leaf)
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSUMm":
        raise ArgumentError(
            f"Elements for workers are numbers. Received: {leaf.dtype} of shape {leaf.shape}. Look text up in the "
            "dataset's map function, as keras.layers.StringLookup does."
        )
    return leaf


def dataset_maker(dataset_or_fn: Any) -> Callable[[], Any]:
    """Returns what makes a worker's dataset.

    Raises:
        ArgumentError: If it is no dataset, and returns none.
    """
    function = getattr(dataset_or_fn, "python_function", dataset_or_fn)
    if not callable(function) or hasattr(function, "element_spec"):
        function = lambda: dataset_or_fn  # noqa: E731

    def make() -> Any:
        found = function()
        if not hasattr(found, "element_spec") or not hasattr(found, "__iter__"):
            raise ArgumentError(
                "create_per_worker_dataset takes a dataset, or a function without arguments that returns one. "
                f"Received: {type(found).__name__}. Make a tf.data.Dataset, or call "
                "strategy.distribute_datasets_from_function in it."
            )
        return found

    return make
