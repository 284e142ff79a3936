"""Which checkpoints stay: the rules of `tf.compat.v1.train.Saver`.

The newest `keep_max` stay. When one more is saved the oldest of them goes, unless it was saved after the time at which
the next one is to be kept for ever; that time then moves on by whole periods, past the one that is kept.

Unlike there, the time counts on across restarts, and one that cannot be removed yet is tried again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Saved:
    """A checkpoint that may have to go.

    Attributes:
        name: Its name in the directory.
        time: When it was saved, in seconds since the epoch.
    """

    name: str
    time: float


@dataclass
class Retention:
    """What is there and may have to go.

    Attributes:
        keep_max: How many stay; 0 for all.
        period: Seconds, for each of which one is kept for ever.
        since: From when on the period counts, in seconds since the epoch.
        listed: What is there, from the oldest to the newest.
    """

    keep_max: int
    period: float
    since: float
    listed: list[Saved] = field(default_factory=list[Saved])

    def recover(self, found: Sequence[Saved], since: float | None) -> None:
        """Goes on with what an earlier writer listed, and with its time."""
        if self.keep_max:
            self.listed = list(found)
        if since is not None and math.isfinite(since):
            self.since = min(self.since, since)

    def add(self, saved: Saved) -> None:
        """Takes note of a checkpoint that was saved, perhaps anew."""
        keep = [other for other in self.listed if other.name != saved.name] if self.keep_max else []
        self.listed = [*keep, saved]

    def excess(self) -> list[Saved]:
        """Returns what goes, except what is kept for ever, which is forgotten here."""
        excess = self.listed[: -self.keep_max] if self.keep_max else []
        return [saved for saved in excess if not self._preserve(saved)]

    def drop(self, saved: Saved) -> None:
        """Forgets a checkpoint."""
        self.listed.remove(saved)

    def _preserve(self, saved: Saved) -> bool:
        late = saved.time - self.since
        if late <= self.period:
            return False
        self.since += self.period * max(1, math.ceil(late / self.period) - 1) if self.period else 0.0
        self.drop(saved)
        return True
