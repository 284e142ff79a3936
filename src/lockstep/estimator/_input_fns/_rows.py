"""Input functions of rows in memory, shared by numpy and pandas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

from lockstep._types import PyTree
from lockstep.data import Dataset, Options, ThreadingOptions
from lockstep.errors import ArgumentError


def input_fn_of(
    rows: PyTree, batch_size: object, num_epochs: object, shuffle: object, queue_capacity: object, num_threads: object
) -> Callable[[], Dataset]:
    """Returns an input_fn; see `numpy_input_fn` for the arguments.

    Args:
        rows: Features, or features and labels: a structure of arrays with the same first axis.
        batch_size: Rows in a batch.
        num_epochs: Number of passes over the rows; `None` for endless ones.
        shuffle: Whether to shuffle.
        queue_capacity: Size of the shuffle buffer, in rows.
        num_threads: Number of threads that compute batches.

    Raises:
        ArgumentError: If a number is out of range.
    """
    size, capacity = _count(batch_size, "batch_size"), _count(queue_capacity, "queue_capacity")
    epochs = None if num_epochs is None else _count(num_epochs, "num_epochs")
    threads = _threads(num_threads, epochs)

    def input_fn() -> Dataset:
        # repeat before shuffle and batch: TensorFlow's queue mixes epochs in batches and in the shuffle buffer.
        dataset = Dataset.from_tensor_slices(rows).repeat(epochs)
        dataset = dataset.shuffle(capacity) if shuffle else dataset
        return dataset.batch(size, drop_remainder=epochs is None).with_options(threads)

    return input_fn


def check_shuffle(shuffle: object) -> None:
    """Raises `ArgumentError` unless the program says whether to shuffle."""
    if not isinstance(shuffle, bool):
        raise ArgumentError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
            f"training). Received: {shuffle!r}."
        )


def _count(value: object, name: str) -> int:
    if not isinstance(value, Integral) or value is True or value < 1:
        raise ArgumentError(f"{name} must be a whole number above 0. Received: {value!r}.")
    return int(value)


def _threads(num_threads: object, epochs: int | None) -> Options:
    threads = _count(num_threads, "num_threads")
    if threads > 1 and epochs is not None:
        raise ArgumentError(
            "num_threads must be 1 where num_epochs is given: in TensorFlow each thread goes through all epochs. "
            f"Received: num_threads={threads} and num_epochs={epochs}. Leave num_threads out, or multiply num_epochs."
        )
    size = None if threads == 1 else threads
    return Options(threading=ThreadingOptions(private_threadpool_size=size))


def check_lengths(columns: Mapping[str, Any]) -> None:
    """Raises `ArgumentError` unless all arrays have the same length."""
    lengths = {shape[0] if shape else None for shape in (tuple(c.shape) for c in columns.values())}
    if len(lengths) != 1 or None in lengths:
        shapes = {name: tuple(column.shape) for name, column in columns.items()}
        raise ArgumentError(
            "Length of tensors in x and y is mismatched. All elements in x and y must have the same length. Received "
            f"shapes: {shapes}."
        )
