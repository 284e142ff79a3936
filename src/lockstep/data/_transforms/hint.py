"""`shard(SHARD_HINT, SHARD_HINT)`: marks where the workers of a strategy divide a dataset."""

from __future__ import annotations

from lockstep.data._plan import Cursor, Run, Transformation


class HintedShard(Transformation):
    """All elements, until a distribution replaces it by a shard for each worker."""

    def open(self, run: Run) -> Cursor:
        return self.upstream.open(run)
