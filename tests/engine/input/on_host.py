"""A step program that leaves batches on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lockstep._engine.input.batch import unwrap
from lockstep._engine.step.batches import DeviceBatch, GatherIndices, Split


class OnHost:
    """Takes batches one by one, or `together` of them.

    Args:
        together: How many places a chunk has; 0 for batches that go alone.
        watch: Is told of each batch that is placed.
    """

    def __init__(self, together: int = 0, watch: Callable[[Any], Any] = lambda batch: None) -> None:
        self._together = together
        self._watch = watch

    def prepare(self, batch: Any) -> Any:
        return unwrap(batch)

    def decide(self, state: Any, batch: Any) -> None:
        """Has decided."""

    def chunk_capacity(self, batch: Any) -> int:
        return self._together

    def place(self, batches: Sequence[Any]) -> DeviceBatch:
        for batch in batches:
            self._watch(batch)
        computed = [b.batch_fn(b.arrays, b.rows) if isinstance(b, GatherIndices) else b for b in batches]
        return DeviceBatch(computed, Split.WHOLE, capacity=self._together, steps=len(batches))
