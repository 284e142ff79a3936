"""What other programs did meanwhile: a measurement on a machine that was busy is not one."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_STAT = Path("/proc/stat")


class Disturbance:
    """Watches the processors from its creation on. Where there is no `/proc/stat`, nothing is seen."""

    def __init__(self) -> None:
        self._busy, self._all = _processors()
        self._own = _own()

    def others(self) -> float:
        """Returns the part of all processors' time that other processes than this one and its children had since."""
        busy, whole = _processors()
        if whole <= self._all:
            return 0.0
        return max(0.0, (busy - self._busy) - (_own() - self._own)) / (whole - self._all)


def _processors() -> tuple[float, float]:
    """Seconds that the processors have worked, and those that have passed on all of them."""
    if not _STAT.exists():
        return 0.0, 0.0
    user, nice, system, idle, waiting, *more = (int(n) for n in _STAT.read_text().split("\n", 1)[0].split()[1:9])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + sum(more)) / ticks, (user + nice + system + idle + waiting + sum(more)) / ticks


def _own() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)
