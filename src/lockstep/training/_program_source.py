"""The sources of a user's own step program: datasets, and any iterable of global batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from lockstep._engine.input import random_state
from lockstep._engine.input.batch import no_batch, skip
from lockstep._engine.input.datasets import identity
from lockstep._engine.input.distributed import DistributedSource
from lockstep._engine.input.source import Source, distribution_of, random_state_of_pass
from lockstep._engine.step.batches import RaggedShard
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import canonical, map_structure
from lockstep._types import JSON, ArrayLike, Batch, SourcePosition
from lockstep.data.internal import check_finite
from lockstep.distribute.internal import DistributedValues, PerReplica
from lockstep.errors import ArgumentError


def source_of(data: Any, replicas: Replicas, steps: int | None) -> Source:
    """Returns a source of the batches of `data`, in the structure that they have there.

    Args:
        data: A `lockstep.data.Dataset` of global batches, what `experimental_distribute_dataset` makes of one, or an
            iterable of global batches, equal on all workers.
        replicas: The replicas.
        steps: After how many batches an epoch, or training, ends; `None` if with the data.

    Raises:
        ArgumentError: If it is none of these.
        InputError: If neither data nor training end.
    """
    if (distribution := distribution_of(data, replicas)) is not None:
        check_finite(distribution.dataset, steps)
        return DistributedSource(distribution, identity)
    # These are iterable, too: each row, character or key would be taken for a global batch.
    if isinstance(data, (np.ndarray, jax.Array, str, bytes, dict)) or not isinstance(data, Iterable):
        raise ArgumentError(
            "A program trains on a lockstep.data.Dataset of global batches, or on an iterable of them. Received: "
            f"{type(data).__name__}. Arrays become one with "
            "lockstep.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(64)."
        )
    return Batches(data)


def concatenate(batch: Batch, replicas: Replicas) -> Any:
    """Returns a batch whose arrays may be values of the replicas as a batch of arrays, or this worker's shard of one.

    Raises:
        ArgumentError: If its arrays are divided in different ways, or nobody knows in which.
    """
    leaves = jax.tree.leaves(batch)
    if not any(isinstance(leaf, DistributedValues) for leaf in leaves):
        return batch
    rows = {_rows(leaf) for leaf in leaves}
    known = rows.pop()
    if rows or known is None:
        raise ArgumentError(
            "A batch of the values of replicas has them for each array, with the same rows on each replica, as "
            f"experimental_distribute_dataset yields it. Received: {batch!r:.200}. Pass one of those, or global arrays."
        )
    data = map_structure(lambda v: np.concatenate([np.asarray(own) for own in v.values]), batch)
    # Replicas of a worker are neighbours, so that its rows are, too.
    tasks = len(replicas.runtime.tasks)
    each = replicas.count // tasks
    return data if tasks == 1 else RaggedShard(data, tuple(sum(known[i * each : (i + 1) * each]) for i in range(tasks)))


def _rows(value: ArrayLike) -> tuple[int, ...] | None:
    """Returns how many rows each replica has, over all workers."""
    shapes = value.shapes if isinstance(value, PerReplica) else None
    return tuple(shape[0] for shape in shapes) if shapes and all(shapes) else None


class Batches:
    """An iterable of global batches; an iterator is read once, by however many epochs it lasts for."""

    in_memory = False
    kind = "iterable"
    start = None
    held = None
    draws_at_end = False

    def __init__(self, data: Iterable[Any]) -> None:
        self._data = data
        self.single_pass = isinstance(data, Iterator)
        # An iterator has one pass; a list, or an object with __iter__, begins again.
        self._rest: Iterator[Any] | None = data if isinstance(data, Iterator) else None
        self._beginning: Any = None

    @property
    def num_batches(self) -> int | None:
        """Returns the number of batches of a pass, if the data have a length."""
        return len(self._data) if hasattr(self._data, "__len__") else None  # pyright: ignore[reportArgumentType]

    def begin_pass(self) -> Iterator[Any]:
        """Starts a pass, or goes on with the only one."""
        if self._rest is None:
            self._beginning = random_state.snapshot()
            return map(canonical, self._data)
        # The one pass of an iterator began with the first epoch, however many take from it.
        self._beginning = self._beginning or random_state.snapshot()
        return self

    def end_pass(self) -> None:
        """Leaves the iterable as it is."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        assert self._rest is not None
        return canonical(next(self._rest))

    def peek(self) -> Any:
        """Returns a first batch, which will come again."""
        now = random_state.snapshot()
        first = next(iter(self), None) if self.single_pass else next(map(canonical, self._data), None)
        if first is None:
            raise no_batch()
        if self._rest is None:
            # The pass begins anew, and draws the same again.
            random_state.restore(now)
        else:
            self._rest = itertools.chain([first], self._rest)
        return first

    def saved_position(self, position: SourcePosition) -> Any:
        """Returns the random state with which the pass began: what draws from it draws the same again."""
        del position
        return {"random": self._beginning}

    def resume_pass(self, saved: JSON, batches: int, rows: int | None) -> Iterator[Any]:
        """Begins the pass again, and skips the batches that were used."""
        with random_state_of_pass(saved["random"], batches):
            passing = self.begin_pass()
            skip(passing, batches, rows)
        self._beginning = saved["random"]
        return passing

    def between(self) -> Any:
        """Returns nothing: an iterable does not tell what its next pass depends on."""
        return {}

    def follow(self, between: Any) -> None:
        """Ignores `between`, which is empty."""
        del between
