"""How many steps one dispatch runs.

Around a compiled program Python takes some 0.1 to 0.5 ms, which a large step does not feel and a small one spends half
of its time on. So small steps run in a loop that is part of the program, over batches that are there already.

Every step of such a program runs in the same compiled loop, whether it is one or a hundred. So the numbers do not
depend on how steps are put together, which depends on time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lockstep._engine.step.placement import alike

# What a dispatch takes from the steps, while programs run and Python goes on; then for each array; and the part of a
# step's time that may be spent on it.
_DISPATCH_SECONDS = 2e-4
_SECONDS_PER_ARRAY = 1.5e-6
_SHARE = 0.02
# A chunk holds so many batches and bytes at most, and so many bytes of what its steps hand out.
_MOST = 256
_MOST_TOGETHER = 16
_BYTES = 8 << 20
_OUTPUT_BYTES = 4 << 20
# A dispatch that takes less may be longer, one that takes more must be shorter: signals and callbacks wait for it.
# Where XLA has all cores, what Python does around a dispatch is taken from the steps.
_SHORT_SECONDS, _LONG_SECONDS = 0.04, 0.08


def pays(step_seconds: float, arrays: int) -> bool:
    """Whether a step is so short that several should run in one dispatch.

    Args:
        step_seconds: About how long it takes.
        arrays: How many arrays its state has.
    """
    return _SHARE * step_seconds < _DISPATCH_SECONDS + _SECONDS_PER_ARRAY * arrays


def places_for(nbytes: int, output_bytes: int, is_alone: bool) -> int:
    """Returns for how many batches a chunk has room: a power of two.

    Args:
        nbytes: Of what has to be put on the devices for a batch.
        output_bytes: Of what a step hands out and is kept for each step.
        is_alone: Whether no other tasks take part; words between tasks travel with chunks.
    """
    most = min(_MOST if is_alone else _MOST_TOGETHER, _BYTES // max(1, nbytes), _OUTPUT_BYTES // max(1, output_bytes))
    return 1 << int(math.log2(max(1, most)))


class Pace:
    """How many steps the next dispatch may run: more and more, until one takes long enough.

    Tasks that train together do not follow their clocks: all must dispatch alike, because XLA may put what they
    exchange before or after the loop.
    """

    def __init__(self, is_alone: bool = True) -> None:
        self._follows_clock = is_alone
        self.most = 1 if is_alone else _MOST_TOGETHER

    def took(self, steps: int, seconds: float) -> None:
        """Notes how long a dispatch of so many steps took."""
        if not self._follows_clock:
            return
        if seconds > _LONG_SECONDS:
            self.most = max(1, steps // 2)
        elif seconds < _SHORT_SECONDS and steps >= self.most:
            self.most = min(2 * self.most, _MOST)


def grouped(batches: Iterable[Any], places: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Yields consecutive batches that are alike, as many together as a chunk has places for; or one alone."""
    group: list[Any] = []
    kind: Any = None
    room = 0
    for batch in batches:
        found = alike(batch)
        if group and found != kind:
            yield group
            group = []
        if not group:
            kind, room = found, places(batch)
        group.append(batch)
        if len(group) >= room:
            yield group
            group = []
    if group:
        yield group
