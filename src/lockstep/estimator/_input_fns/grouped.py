"""Several batches of an input_fn as one: those of which an update of SyncReplicasOptimizer is made."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

from lockstep._engine.input.batch import WithPosition, unwrap
from lockstep._engine.input.distributed import DistributedSource
from lockstep._engine.step.batches import GatherIndices
from lockstep._types import JSON, SourcePosition
from lockstep.estimator._model_fn.function import Batches

_log = logging.getLogger("lockstep")


class GroupedSource:
    """Groups the batches of a source, so many at a time, as a `lockstep._engine.input.source.Source`.

    Where the data end within a group, its batches are left: as in TensorFlow, an update needs all of its gradients.

    Args:
        source: The source, of this process alone.
        count: How many batches are one.
    """

    in_memory = False
    single_pass = False
    held = None
    draws_at_end = False

    def __init__(self, source: DistributedSource, count: int) -> None:
        self._source = source
        self._count = count
        # Positions are those of the source's own batches: another count, or none, may go on from them.
        self.kind = source.kind

    @property
    def start(self) -> Any:
        """Returns the position at the beginning of the pass."""
        return self._source.start

    @property
    def num_batches(self) -> int | None:
        """Returns the number of groups of a pass, if known."""
        count = self._source.num_batches
        return None if count is None else count // self._count

    def begin_pass(self) -> Iterator[Any]:
        """Starts a pass over the data."""
        return self._group(self._source.begin_pass())

    def end_pass(self) -> None:
        """Ends the pass."""
        self._source.end_pass()

    def peek(self) -> Any:
        """Returns a first group, to learn its shapes: the first batch, as often as a group has batches."""
        return Batches((self._source.peek(),) * self._count)

    def saved_position(self, position: SourcePosition) -> Any:
        """Returns a position as JSON."""
        return self._source.saved_position(position)

    def resume_pass(self, saved: JSON, batches: int, rows: int | None) -> Iterator[Any]:
        """Continues a pass at a saved position."""
        return self._group(self._source.resume_pass(saved, batches, rows))

    def between(self) -> Any:
        """Returns what the next pass depends on."""
        return self._source.between()

    def follow(self, between: Any) -> None:
        """Has the next pass be as `between` says."""
        self._source.follow(between)

    def _group(self, batches: Iterator[Any]) -> Iterator[WithPosition]:
        while len(group := list(itertools.islice(batches, self._count))) == self._count:
            yield WithPosition(Batches(tuple(map(_as_arrays, group))), group[-1].position)
        if group:
            _log.info(
                "The data have ended within an update of %d batches: the last %d are not applied.",
                self._count,
                len(group),
            )


def _as_arrays(batch: Any) -> Any:
    """Returns a batch as arrays, also one whose rows are on the device."""
    plain = unwrap(batch)
    return plain.batch_fn(plain.arrays, plain.rows) if isinstance(plain, GatherIndices) else plain
