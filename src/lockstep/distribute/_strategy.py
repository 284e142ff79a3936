"""What all strategies have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from lockstep.cluster_resolver import ClusterResolver
from lockstep.distribute import _context
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep._step.replicas import BatchStatistics, Replicas


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
        assert self._replicas is not None
        return self._replicas.count

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The resolver that described the cluster, or `None` for a strategy of this process alone."""
        return self._cluster_resolver

    @contextlib.contextmanager
    def scope(self) -> Generator[Strategy]:
        """Opens the context in which models are made for this strategy.

        Raises:
            StartupOrderError: If the scope of another strategy is open.
        """
        from lockstep._keras import binding, ownership

        assert self._replicas is not None
        binding.install()
        with _context.entered(self), ownership.scope(self._replicas):
            yield self


def check_batch_statistics(value: str) -> BatchStatistics:
    """Raises `ArgumentError` unless `value` is "global" or "replica"."""
    if value == "global" or value == "replica":
        return value
    raise ArgumentError(
        'batch_statistics must be "global" (moments over the global batch, as one device would take them) or '
        f'"replica" (over each replica\'s share, as TensorFlow does). Received: {value!r}.'
    )
