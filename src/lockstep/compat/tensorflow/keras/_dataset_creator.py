"""`tf.keras.utils.experimental.DatasetCreator`: the function that makes the data, in place of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.data import InputContext
from lockstep.distribute import InputOptions
from lockstep.errors import ArgumentError

__all__ = ["DatasetCreator"]


class DatasetCreator:
    """Data of `fit` and `evaluate` under ParameterServerStrategy, which every task makes with the same function.

    A job's tasks read the same data and share its batches among them: an epoch sees each batch once. TensorFlow's
    workers have the whole of it each, in an order of their own.

    Args:
        dataset_fn: Called with an `InputContext` of one input pipeline and one replica; returns a dataset of global
            batches, the same on every task.
        input_options: An `InputOptions`, or `None`.

    Raises:
        ArgumentError: If `dataset_fn` cannot be called, or `input_options` are of another kind.

    Source: tf.keras.utils.experimental.DatasetCreator.
    """

    def __init__(self, dataset_fn: Callable[[InputContext], Any], input_options: InputOptions | None = None) -> None:
        if not callable(dataset_fn):
            raise ArgumentError(
                "`dataset_fn` for `DatasetCreator` must be a `callable`. Received: "
                f"{dataset_fn!r}. Pass a function of an InputContext that returns a dataset."
            )
        if input_options is not None and not isinstance(input_options, InputOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                "`input_options` for `DatasetCreator` must be a `tf.distribute.InputOptions`. Received: "
                f"{input_options!r}. Leave it out."
            )
        self.dataset_fn = dataset_fn
        self.input_options = input_options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the dataset.

        Raises:
            ArgumentError: If the function returns something else.
        """
        dataset = self.dataset_fn(*args, **kwargs)
        if not hasattr(dataset, "__iter__"):
            raise ArgumentError(
                f"The `callable` provided to `DatasetCreator` must return a Dataset. Received: {dataset!r}. Return one."
            )
        return dataset
