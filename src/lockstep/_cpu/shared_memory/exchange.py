"""One sum after another through the memory that the processes share.

Each process writes what it adds, a round at a time, says so, and adds up what all have written once all have said so.
Of many processes each adds up a part of a large sum only, and copies the others' parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lockstep._cpu.shared_memory import adding, rounds
from lockstep._cpu.shared_memory.calls import Array, Call
from lockstep._cpu.shared_memory.links import Links
from lockstep._cpu.shared_memory.memory import Arena
from lockstep._cpu.shared_memory.rounds import Piece, Round

LEADER = 0
# From this number of processes on: everything twice (written, read) and 1/n, instead of n times; but one more wait.
_DIVIDED = 4
_DIVIDED_BYTES = 1 << 16

Calls = Sequence[Call]


class Exchange:
    """The side of this process in all sums.

    Args:
        links: To the other processes.
        arenas: What each process writes, in their order.
        capacity: Bytes of a round.
        is_one_each: Whether each process has one replica. What one replica adds is written in its own type; what
            several do, in that of the sums, which may be a wider one.

    Attributes:
        bytes_written: What this process has written so far for the others to read.
    """

    def __init__(self, links: Links, arenas: Sequence[Arena], capacity: int, is_one_each: bool) -> None:
        self._links = links
        self._arenas = arenas
        self._own = arenas[links.process]
        self._capacity = capacity
        self._is_one_each = is_one_each
        self._number = 0
        self.bytes_written = 0

    def begin(self, calls: Calls) -> None:
        """Writes the first round of a sum: one call of each replica of this process. May be repeated with another."""
        self._offer(calls, self._plan(calls)[0], self._number)

    def led(self) -> int:
        """Returns the site of the sum that the first process has begun; on any other one, and once for each sum."""
        return self._links.hear(LEADER, self._number)

    def finish(self, calls: Calls) -> None:
        """Carries out the sum that was begun, and `led` unless this is the first process."""
        if self._is_divided(calls):
            self._finish_divided(calls)
        else:
            self._finish_whole(calls)

    def _finish_whole(self, calls: Calls) -> None:
        plan = self._plan(calls)
        for place, pieces in enumerate(plan):
            # A round ahead, so that a process which is a little late keeps nobody waiting.
            if place + 1 < len(plan):
                self._offer(calls, plan[place + 1], self._number + 1)
            self._hear_all(calls, is_first=place == 0)
            for p, outs in _outputs(calls, pieces):
                terms = self._terms(p.offset, p.stop - p.start, self._written_as(calls[0], p))
                adding.add(terms, outs[0])
                _copy(outs[0], outs[1:])
            self._number += 1

    def _finish_divided(self, calls: Calls) -> None:
        for place, pieces in enumerate(self._plan(calls)):
            if place:
                self._offer(calls, pieces, self._number)
            self._hear_all(calls, is_first=place == 0)
            for p, outs in _outputs(calls, pieces):
                written = self._written_as(calls[0], p)
                count, offset = self._part(p, self._links.process, outs[0].dtype)
                sums = self._own.sums(offset, count, outs[0].dtype)
                _, offset = self._part(p, self._links.process, written)
                adding.add(self._terms(offset, count, written), sums)
                self.bytes_written += sums.nbytes
            self._number += 1
            self._links.tell(self._number, calls[0].site)
            self._hear_all(calls)
            for p, outs in _outputs(calls, pieces):
                self._copy_sums(p, outs)
            self._number += 1

    def _is_divided(self, calls: Calls) -> bool:
        return len(self._arenas) >= _DIVIDED and _size(calls[0]) >= _DIVIDED_BYTES

    def _plan(self, calls: Calls) -> tuple[Round, ...]:
        """The rounds of a sum; there is room for parts of the sums too where these are written."""
        call = calls[0]
        first = call.inputs if self._is_one_each and not self._is_divided(calls) else call.outputs
        return rounds.plan(tuple((v.size, v.dtype.itemsize) for v in first), self._capacity)

    def _written_as(self, call: Call, piece: Piece) -> np.dtype[Any]:
        """The type in which a process writes what it adds."""
        return (call.inputs if self._is_one_each else call.outputs)[piece.value].dtype

    def _offer(self, calls: Calls, pieces: Round, number: int) -> None:
        """Writes the sum of this process' replicas, and says so."""
        for p in pieces:
            terms = [c.inputs[p.value][p.start : p.stop] for c in calls]
            written = self._own.contribution(number, p.offset, p.stop - p.start, self._written_as(calls[0], p))
            adding.add(terms, written)
            self.bytes_written += written.nbytes
        self._links.tell(number, calls[0].site)

    def _hear_all(self, calls: Calls, is_first: bool = False) -> None:
        for other in self._links.others:
            if is_first and other == LEADER:  # `led` has heard it.
                continue
            # A message about another site is a guess that its sender has given up.
            while self._links.hear(other, self._number) != calls[0].site:
                pass

    def _terms(self, offset: int, count: int, dtype: np.dtype[Any]) -> list[Array]:
        return [a.contribution(self._number, offset, count, dtype) for a in self._arenas]

    def _part(self, piece: Piece, process: int, dtype: np.dtype[Any]) -> tuple[int, int]:
        """How many elements of a piece `process` adds up, and where they lie in shared memory."""
        start, stop = rounds.part(piece.stop - piece.start, process, len(self._arenas))
        return stop - start, piece.offset + start * dtype.itemsize

    def _copy_sums(self, piece: Piece, outs: list[Array]) -> None:
        for process, arena in enumerate(self._arenas):
            start, stop = rounds.part(piece.stop - piece.start, process, len(self._arenas))
            count, offset = self._part(piece, process, outs[0].dtype)
            _copy(arena.sums(offset, count, outs[0].dtype), [out[start:stop] for out in outs])


def _outputs(calls: Calls, pieces: Round) -> Iterator[tuple[Piece, list[Array]]]:
    for p in pieces:
        yield p, [c.outputs[p.value][p.start : p.stop] for c in calls]


def _copy(value: Array, outs: Sequence[Array]) -> None:
    for out in outs:
        np.copyto(out, value)


def _size(call: Call) -> int:
    return sum(v.nbytes for v in call.inputs)
