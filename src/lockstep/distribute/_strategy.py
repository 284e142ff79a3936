"""What all strategies have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from lockstep.cluster_resolver import ClusterResolver
from lockstep.distribute import _context
from lockstep.distribute._input import DistributedDataset, InputOptions
from lockstep.distribute._values import local_results
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep._step.replicas import BatchStatistics, Replicas
    from lockstep.data import Dataset, InputContext


class Strategy:
    """A set of replicas, one per device, that train a model together.

    Models created, loaded or compiled under `scope()` train, evaluate and predict on all of them. Whatever their
    number, training follows the trajectory of one device with the same global batch.

    Source: tf.distribute.Strategy.
    """

    def __init__(self, replicas: Replicas | None, cluster_resolver: ClusterResolver | None = None) -> None:
        self._replicas = replicas
        self._cluster_resolver = cluster_resolver

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas, over all workers: as many devices as there are."""
        return self._demanded_replicas().count

    def _demanded_replicas(self) -> Replicas:
        assert self._replicas is not None
        return self._replicas

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The resolver that described the cluster, or `None` for a strategy of this process alone."""
        return self._cluster_resolver

    def experimental_distribute_dataset(
        self, dataset: Dataset, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Divides a dataset of global batches over the replicas.

        Which worker computes what follows the dataset's `auto_shard_policy`. By default every worker computes its rows
        of each global batch, and the batches are those that one worker would see.

        Args:
            dataset: Of global batches, made alike on every worker.
            options: How elements are handed out.

        Raises:
            ArgumentError: If this is no dataset, or its auto-shard policy does not fit it.
        """
        from lockstep._feed.distributed import of_dataset
        from lockstep.data import Dataset

        if not isinstance(dataset, Dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"experimental_distribute_dataset needs a lockstep.data.Dataset. Received: {type(dataset).__name__}. "
                "Make one with Dataset.from_tensor_slices or Dataset.from_generator."
            )
        return DistributedDataset(of_dataset(dataset, self._demanded_replicas()), options)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Dataset], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Calls a function on every worker for a dataset of its own, of batches for a replica each.

        Args:
            dataset_fn: Is told which of how many pipelines it makes, and shards and batches accordingly.
            options: How elements are handed out.

        Raises:
            ArgumentError: If it returns no dataset.
        """
        from lockstep._feed.distributed import of_function

        return DistributedDataset(of_function(dataset_fn, self._demanded_replicas()), options)

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Returns what each replica of this process has of a value or structure, as a tuple."""
        return local_results(value)

    @contextlib.contextmanager
    def scope(self) -> Generator[Strategy]:
        """Opens the context in which models are made for this strategy.

        Raises:
            StartupOrderError: If the scope of another strategy is open.
        """
        from lockstep._keras import binding, ownership

        binding.install()
        with _context.entered(self), ownership.scope(self._demanded_replicas()):
            yield self


def check_batch_statistics(value: str) -> BatchStatistics:
    """Raises `ArgumentError` unless `value` is "global" or "replica"."""
    if value == "global" or value == "replica":
        return value
    raise ArgumentError(
        'batch_statistics must be "global" (moments over the global batch, as one device would take them) or '
        f'"replica" (over each replica\'s share, as TensorFlow does). Received: {value!r}.'
    )
