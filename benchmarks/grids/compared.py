"""Two programs in turn, and how much longer the second one takes."""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax

# How many times as long it may take.
ALLOWED = 1.1


def compared(programs: tuple[Any, Any], operands: tuple[Any, ...], seconds: float) -> tuple[float, float, float]:
    """Returns the medians of both programs' times in ms, and of the ratio of the second to the first in each round.

    What seems slower is measured again, twice, for longer, before it counts.
    """
    own, ours, ratio = _compare(programs, operands, seconds)
    for _ in range(2):
        if ratio > ALLOWED and own - ours < 0:
            own, ours, ratio = _compare(programs, operands, 3 * seconds)
    return own, ours, ratio


def _compare(programs: tuple[Any, Any], operands: tuple[Any, ...], seconds: float) -> tuple[float, float, float]:
    """Returns the medians of both programs' times in ms, and of the rounds' ratios."""
    for program in programs:
        _time(program, operands)
    times: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        order = (0, 1) if len(times) % 2 else (1, 0)
        found = {which: _time(programs[which], operands) for which in order}
        times.append((found[0], found[1]))
        if time.perf_counter() > end + 10 * seconds:
            break
    own, ours = zip(*times, strict=True)
    ratio = statistics.median(b / a for a, b in times)
    return statistics.median(own) * 1e3, statistics.median(ours) * 1e3, ratio


def _time(program: Any, operands: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(program(*operands))
    return time.perf_counter() - start
