"""`shard(SHARD_HINT, SHARD_HINT)`: marks where the workers of a strategy divide a dataset."""

from __future__ import annotations

from lockstep.data._plan import Cursor, Run, Transformation


class HintedShard(Transformation):
    """A mark that a distribution replaces by a shard for each worker; until then, all elements."""

    def open(self, run: Run) -> Cursor:
        return self.upstream.open(run)
