"""Methods of strategies from TensorFlow 1, which programs and tests still call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep._types import PyTree
from lockstep.distribute._input import DistributedDataset, DistributedIterator, InputOptions, InputReplicationMode
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.data import Dataset, InputContext


class InputIterator:
    """Reads a distributed dataset, from the beginning again when it is initialized.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: DistributedDataset) -> None:
        self._dataset = dataset
        self._iterator: DistributedIterator | None = None

    def initialize(self) -> None:
        """Begins at the first element."""
        self._iterator = iter(self._dataset)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def initializer(self) -> None:
        """Begins at the first element; there is nothing left to run in a session."""
        self.initialize()

    def get_next(self) -> Any:
        """Returns the next element, in which each replica has its own.

        Raises:
            EndOfDataError: At the end.
        """
        if self._iterator is None:
            self.initialize()
        assert self._iterator is not None
        return self._iterator.get_next()


class FormerMethods:
    """Methods that `tf.distribute.Strategy` has kept from TensorFlow 1."""

    experimental_distribute_dataset: Callable[..., DistributedDataset]
    distribute_datasets_from_function: Callable[..., DistributedDataset]
    experimental_local_results: Callable[[PyTree], tuple[Any, ...]]
    run: Callable[..., Any]

    def make_dataset_iterator(self, dataset: Dataset) -> InputIterator:
        """Returns an iterator over a dataset of global batches; see `experimental_distribute_dataset`.

        Source: tf.distribute.Strategy.make_dataset_iterator.
        """
        return InputIterator(self.experimental_distribute_dataset(dataset))

    def make_input_fn_iterator(
        self,
        input_fn: Callable[[InputContext], Dataset],
        replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
    ) -> InputIterator:
        """Returns an iterator over the datasets of a function; see `distribute_datasets_from_function`.

        Source: tf.distribute.Strategy.make_input_fn_iterator.
        """
        if replication_mode is not InputReplicationMode.PER_WORKER:
            raise ArgumentError(
                f"replication_mode must be PER_WORKER. Received: {replication_mode}. Use "
                "distribute_datasets_from_function with InputOptions."
            )
        return InputIterator(self.distribute_datasets_from_function(input_fn, InputOptions()))

    def experimental_run(self, fn: Callable[..., Any], input_iterator: InputIterator | None = None) -> Any:
        """Runs a function once per replica, with the next element of an iterator; see `run`.

        Source: tf.compat.v1.distribute.Strategy.experimental_run.
        """
        return self.run(fn, args=() if input_iterator is None else (input_iterator.get_next(),))

    def unwrap(self, value: PyTree) -> tuple[Any, ...]:
        """Returns what `experimental_local_results` does. Source: tf.distribute.Strategy.unwrap."""
        return self.experimental_local_results(value)

    def group(self, value: PyTree, name: str | None = None) -> None:
        """Does nothing: what replicas return has been computed. Source: tf.distribute.Strategy.group."""
