"""Cuts the values of a sum into rounds: what is exchanged between two waits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

# So that no two values share a line of the cache.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Piece:
    """A part of one value.

    Attributes:
        value: Number of the value.
        start: Its first element.
        stop: After its last element.
        offset: Where it lies in the shared memory of a round, in bytes.
    """

    value: int
    start: int
    stop: int
    offset: int


Round = tuple[Piece, ...]


@lru_cache(maxsize=4096)
def plan(sizes: tuple[tuple[int, int], ...], capacity: int) -> tuple[Round, ...]:
    """Distributes values over rounds that hold at most `capacity` bytes each.

    Args:
        sizes: Elements, and bytes per element, of each value.
        capacity: Bytes; a multiple of 64.
    """
    rounds: list[Round] = []
    pieces: list[Piece] = []
    filled = 0
    for number, (count, width) in enumerate(sizes):
        start = 0
        while start < count:
            room = (capacity - filled) // width
            stop = min(count, start + room)
            if stop > start:
                pieces.append(Piece(number, start, stop, filled))
                filled = _aligned(filled + (stop - start) * width)
            start = stop
            if filled >= capacity or room <= 0:
                rounds.append(tuple(pieces))
                pieces, filled = [], 0
    return (*rounds, tuple(pieces)) if pieces else tuple(rounds)


def part(count: int, number: int, parts: int) -> tuple[int, int]:
    """The elements, of `count`, that process `number` of `parts` adds up: the first, and the one after the last."""
    return count * number // parts, count * (number + 1) // parts


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
