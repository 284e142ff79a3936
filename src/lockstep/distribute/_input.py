"""Datasets distributed over the replicas of a strategy, for loops of one's own and for Keras."""

from __future__ import annotations

import enum
import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._engine.step.sequential_emulation import shard_slices
from lockstep._nest import unpack
from lockstep._types import Array, Batch
from lockstep.distribute._context import running_scope
from lockstep.distribute._values import per_replica
from lockstep.errors import ArgumentError, EndOfDataError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.input.batch import WithPosition
    from lockstep._engine.input.distributed import Distribution
    from lockstep._engine.step.batches import OfReplicas
    from lockstep.data.internal import Optional


class InputReplicationMode(enum.Enum):
    """How many pipelines read for the replicas. Source: tf.distribute.InputReplicationMode."""

    PER_WORKER = "PER_WORKER"
    """One for each worker."""
    PER_REPLICA = "PER_REPLICA"
    """One for each replica; for `distribute_datasets_from_function` alone."""


@dataclass(frozen=True)
class InputOptions:
    """How a distributed dataset hands out its elements.

    Attributes:
        experimental_fetch_to_device: Whether values are put on their replicas' devices (default), or stay numpy arrays.
        experimental_replication_mode: "PER_WORKER" (default), one pipeline for each worker; or "PER_REPLICA", one for
            each replica, for `distribute_datasets_from_function`.
        experimental_place_dataset_on_device: Whether elements wait on the devices, whatever
            `experimental_fetch_to_device` says. They are computed on the host in either case.
        experimental_per_replica_buffer_size: How many elements wait for a replica. Values are the same for any.

    Raises:
        ArgumentError: If a mode is unknown, or a size is no positive number.

    Source: tf.distribute.InputOptions.
    """

    experimental_fetch_to_device: bool | None = None
    experimental_replication_mode: InputReplicationMode | str | None = None
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        mode = self.experimental_replication_mode
        # By its text, which ends so for TensorFlow's enum, too.
        if str(mode).rsplit(".", 1)[-1] not in ("None", *InputReplicationMode.__members__):
            raise ArgumentError(
                f"experimental_replication_mode must be PER_WORKER or PER_REPLICA. Received: {mode!r}. Example: "
                '"PER_REPLICA"'
            )
        size = self.experimental_per_replica_buffer_size
        if size is not None and (type(size) is not int or size < 1):
            raise ArgumentError(
                f"experimental_per_replica_buffer_size must be a positive whole number. Received: {size!r}. Example: 2"
            )

    def check_for_function(self) -> None:
        """Raises `ArgumentError` for options that TensorFlow refuses for `distribute_datasets_from_function`."""
        if not self.experimental_place_dataset_on_device:
            return
        if not self.is_per_replica or self.experimental_fetch_to_device:
            raise ArgumentError(
                "experimental_place_dataset_on_device goes with PER_REPLICA, and without "
                f"experimental_fetch_to_device=True. Received: {self}. Leave it out: elements are computed on the host."
            )

    @property
    def is_per_replica(self) -> bool:
        """Returns whether each replica has a pipeline of its own."""
        return str(self.experimental_replication_mode).endswith(InputReplicationMode.PER_REPLICA.value)


class DistributedDataset:
    """A dataset whose elements are divided over the replicas.

    Iterating gives, in the structure of the elements, a `PerReplica` for each array (with a single replica: the array
    itself). A batch is divided into shares of equal size, the last ones smaller or empty if it does not
    divide. All workers must iterate alike. `fit`, `evaluate` and `predict` of a model of the same strategy take it
    too.

    Source: tf.distribute.DistributedDataset.
    """

    def __init__(self, distribution: Distribution, options: InputOptions | None) -> None:
        self._distribution = distribution
        self._input_options = options or InputOptions()

    @property
    def element_spec(self) -> Any:
        """The spec of the elements before they are divided."""
        return self._distribution.dataset.element_spec

    def __iter__(self) -> Iterator[Any]:
        return DistributedIterator(self._distribution, self._input_options)


class DistributedIterator:
    """Gives each replica its share of the elements of a distributed dataset.

    Source: tf.distribute.DistributedIterator.
    """

    def __init__(self, distribution: Distribution, options: InputOptions) -> None:
        self._distribution = distribution
        self._options = options
        self._start(None)

    def _start(self, position: Any) -> None:
        from lockstep._engine.input.datasets import ShardSpec
        from lockstep._engine.input.reader import Reader

        distribution = self._distribution
        runtime = distribution.replicas.runtime
        shares = _Shares(distribution, self._options)
        self._passing = distribution.begin(ShardSpec(shares.rows, is_apart=distribution.is_by_replica), position)
        self._position = self._passing.position()
        self._reader = Reader(iter(self._passing), None, shares, runtime, runtime.channel(distribution.name))
        self._batches = iter(self._reader)
        # An iterator that is dropped in the middle must not leave its thread behind.
        weakref.finalize(self, self._reader.close)

    def __iter__(self) -> DistributedIterator:
        return self

    def __next__(self) -> Any:
        found = self._next()
        if found is None:
            # A StopIteration, which ends a loop, and what TensorFlow raises in functions.
            raise EndOfDataError("The dataset has no next element. Iterate with for, or catch this error.")
        # The position after what was handed out, not after what was read ahead: a restart must lose no batch.
        value, self._position = found
        return value

    def _next(self) -> Any:
        # A batch is there once all tasks have agreed that it is.
        if running_scope() is not None:
            raise UnsupportedError(
                "A distributed dataset is read outside of what is compiled, which would hold its first batch for "
                "ever. Received: a read in a function of run. Pass it the batch as an argument."
            )
        runtime = self._distribution.replicas.runtime
        if runtime.is_alone:
            return next(self._batches, None)
        with runtime.collective_region("the next batch of a distributed dataset"):
            return next(self._batches, None)

    def get_next(self) -> Any:
        """Returns the next element.

        Raises:
            EndOfDataError: At the end; it is a `StopIteration`.
        """
        return next(self)

    def get_next_as_optional(self) -> Optional:
        """Returns the next element, or that there is none: `has_value()` tells, `get_value()` returns it."""
        # Of the class that the dataset's own iterators give.
        return self._distribution.dataset._optional_of_next(self)  # pyright: ignore[reportPrivateUsage]

    @property
    def element_spec(self) -> Any:
        """The spec of the elements before they are divided."""
        return self._distribution.dataset.element_spec

    def get_state(self) -> dict[str, Any]:
        """Returns the position: what JSON can hold, good for any number of workers. All workers must call it."""
        return self._distribution.saved_position(self._passing, self._position)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a position. All workers must call it, with the same one.

        Raises:
            ArgumentError: If it belongs to another dataset, or another auto-shard policy.
        """
        # What was read ahead is of the old position.
        self._reader.close()
        self._start(state)


class _Shares:
    """Divides batches over the replicas of this process, and puts them there."""

    def __init__(self, distribution: Distribution, options: InputOptions) -> None:
        self._replicas = distribution.replicas
        # What stays on the host is what the dataset yields itself, such as tensors that have `numpy()`.
        self._of_host = distribution.dataset._convert_element  # pyright: ignore[reportPrivateUsage]
        place = options.experimental_place_dataset_on_device
        self._to_devices = options.experimental_fetch_to_device is not False or place

    def rows(self, count: int) -> slice | None:
        """Returns the rows of a batch for this process: those of its first replica to those of its last."""
        # Nothing to leave out: a process that has all replicas cuts their shares as views, when they are placed.
        if len(self._replicas.local) == self._replicas.count:
            return None
        cuts = self._cuts(count)
        return slice(cuts[0].start, cuts[-1].stop)

    def prepare(self, batch: Batch) -> Any:
        """Returns `batch`."""
        return batch

    def chunk_capacity(self, batch: Batch) -> int:
        """Each batch goes alone."""
        del batch
        return 0

    def place(self, batches: Sequence[WithPosition]) -> tuple[Any, Any]:
        """Returns a batch as values for each replica, and the position after it."""
        from lockstep._engine.step.batches import EvenShard, OfReplicas, RaggedShard

        first = batches[0]
        batch = first.batch
        data = batch.data if isinstance(batch, (RaggedShard, EvenShard)) else batch
        if isinstance(data, OfReplicas):
            return self._apart(data), first.position
        # One replica gets elements as they are, which need not be batches.
        if self._replicas.count == 1:
            return unpack(self._put(self._replicas.local[0][1], data, None)), first.position
        if isinstance(batch, EvenShard):
            rows = self._each([batch.count])
        else:
            own = _rows_of(data)
            rows = self._each(batch.counts or (own,) if isinstance(batch, RaggedShard) else (own,))
        ends = list(itertools.accumulate(rows[i] for i, _ in self._replicas.local))
        cuts = [slice(end - rows[i], end) for end, (i, _) in zip(ends, self._replicas.local, strict=True)]
        values = [self._put(d, data, cut) for (_, d), cut in zip(self._replicas.local, cuts, strict=True)]
        shapes = [tuple((n, *leaf.shape[1:]) for n in rows) for leaf in jax.tree.leaves(values[0])]
        return unpack(per_replica(values, shapes, self._replicas.count)), first.position

    def _each(self, counts: Sequence[int]) -> list[int]:
        """Returns the row count of each replica, given those of all together, or those of each process."""
        # With a count of each process, its rows stay with its replicas: they were read there, and other hosts lack
        # them.
        parts = self._replicas.count // len(counts)
        return [cut.stop - cut.start for count in counts for cut in shard_slices(count, parts)]

    def _cuts(self, count: int) -> list[slice]:
        """Returns the rows of each replica of this process."""
        # TensorFlow's rule (strategy_common_test): of 14 rows in batches of 8, two replicas get 3 each of the last 6.
        cuts = shard_slices(count, self._replicas.count)
        return [cuts[i] for i, _ in self._replicas.local]

    def _apart(self, data: OfReplicas) -> Any:
        """Returns an element for each replica of this process."""
        pairs = zip(data.elements, self._replicas.local, strict=True)
        values = [self._put(device, element, None) for element, (_, device) in pairs]
        # Other processes' shapes are not known here; whoever needs them asks.
        is_alone = self._replicas.runtime.is_alone
        of_each = zip(*map(jax.tree.leaves, values), strict=True)
        shapes = [[np.shape(leaf) for leaf in leaves] for leaves in of_each] if is_alone else None
        return unpack(per_replica(values, shapes, self._replicas.count))

    def _put(self, device: Any, data: Batch, cut: slice | None) -> Any:
        # Cut on the host, where it is a view: only its share goes to a device.
        part = data if cut is None else jax.tree.map(lambda a: a[cut], data)
        return jax.tree.map(lambda a: self._on(device, a), part)

    def _on(self, device: Any, array: Array) -> Any:
        """Puts an array on a device; text stays on the host."""
        from lockstep._engine.step.batches import to_arrays

        if not self._to_devices or array.dtype == object:
            return self._of_host(array)
        return jax.device_put(to_arrays(array), device)


def _rows_of(data: Batch) -> int:
    lengths = {len(leaf) if getattr(leaf, "ndim", 0) else None for leaf in jax.tree.leaves(data)}
    count = lengths.pop() if len(lengths) == 1 else None
    if count is None:
        raise ArgumentError(
            "A distributed dataset must consist of batches, whose arrays have a common first axis. Received: elements "
            "without one. Call batch(global_batch_size) on the dataset."
        )
    return count
