"""Sums through the memory that the processes share, one after another, chunk by chunk.

Each process writes what it adds, a chunk at a time, says so, and adds up what all have written once all have said so.
Of many processes each reduces a shard of a large sum only, and copies the others' shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lockstep._cpu.shared_memory.connections import Connections
from lockstep._cpu.shared_memory.custom_call import Array, Call
from lockstep._cpu.shared_memory.shm import Segment
from lockstep._engine.runtime.buffers import align_size

# The process whose order of sums the others follow.
LEADER = 0
# From this number of processes on, reduce-scatter and all-gather: about two passes over the data instead of n, but one
# more wait, which small sums do not earn back.
_SCATTER_PROCESSES = 4
_SCATTER_BYTES = 1 << 16
# Elements reduced at a time, which so stay in the cache of a core: 64 KB of float32.
_BLOCK = 16384

Calls = Sequence[Call]


@dataclass(frozen=True)
class Slice:
    """A contiguous part of one value.

    Attributes:
        value: Number of the value.
        start: Its first element.
        stop: After its last element.
        offset: Where it lies in the shared memory of a chunk, in bytes.
    """

    value: int
    start: int
    stop: int
    offset: int


Chunk = tuple[Slice, ...]


class Exchange:
    """The side of one process in all sums.

    Args:
        connections: To the other processes.
        segments: Each process's memory, in their order.
        capacity: Bytes of a chunk.
        is_one_each: Whether each process has one replica. One replica's values are written in their own type; the sums
            of several, in that of the result, which may be a wider one.

    Attributes:
        bytes_written: Bytes that this process has written so far for the others to read.
    """

    def __init__(self, connections: Connections, segments: Sequence[Segment], capacity: int, is_one_each: bool) -> None:
        self._connections = connections
        self._segments = segments
        self._own = segments[connections.process]
        self._capacity = capacity
        self._is_one_each = is_one_each
        # Counts chunks, and in a scattered sum the shards' announcements too; equal on all processes.
        self._number = 0
        self.bytes_written = 0

    def begin(self, calls: Calls) -> None:
        """Writes the first chunk of a sum: one call of each replica of this process. May be repeated with another."""
        self._write(calls, self._chunks(calls)[0], self._number)

    def receive_leaders_call_id(self) -> int:
        """Returns the id of the sum that the first process has begun; on any other one, and once for each sum."""
        return self._connections.receive(LEADER, self._number)

    def finish(self, calls: Calls) -> None:
        """Carries out the sum that was begun; after `receive_leaders_call_id`, unless this is the first process."""
        if self._is_scattered(calls):
            self._reduce_scatter(calls)
        else:
            self._reduce_all(calls)

    def _reduce_all(self, calls: Calls) -> None:
        chunks = self._chunks(calls)
        for place, chunk in enumerate(chunks):
            # A chunk ahead, so that a process which is a little late keeps nobody waiting.
            if place + 1 < len(chunks):
                self._write(calls, chunks[place + 1], self._number + 1)
            self._receive_all(calls, is_first=place == 0)
            for s, outs in _outputs(calls, chunk):
                reduce(self._contributions(s.offset, s.stop - s.start, self._written_dtype(calls[0], s)), outs[0])
                for out in outs[1:]:
                    np.copyto(out, outs[0])
            self._number += 1

    def _reduce_scatter(self, calls: Calls) -> None:
        for place, chunk in enumerate(self._chunks(calls)):
            if place:
                self._write(calls, chunk, self._number)
            self._receive_all(calls, is_first=place == 0)
            for s, outs in _outputs(calls, chunk):
                start, stop = self._shard(s, self._connections.process)
                written = self._written_dtype(calls[0], s)
                sums = self._own.sums(s.offset + start * outs[0].itemsize, stop - start, outs[0].dtype)
                reduce(self._contributions(s.offset + start * written.itemsize, stop - start, written), sums)
                self.bytes_written += sums.nbytes
            self._number += 1
            self._connections.send(self._number, calls[0].call_id)
            self._receive_all(calls)
            for s, outs in _outputs(calls, chunk):
                for process, segment in enumerate(self._segments):
                    start, stop = self._shard(s, process)
                    sums = segment.sums(s.offset + start * outs[0].itemsize, stop - start, outs[0].dtype)
                    for out in outs:
                        np.copyto(out[start:stop], sums)
            self._number += 1

    def _is_scattered(self, calls: Calls) -> bool:
        return len(self._segments) >= _SCATTER_PROCESSES and sum(v.nbytes for v in calls[0].inputs) >= _SCATTER_BYTES

    def _chunks(self, calls: Calls) -> tuple[Chunk, ...]:
        # Shards of the sums need room as well where they are written, and may be of a wider type.
        narrow = self._is_one_each and not self._is_scattered(calls)
        values = calls[0].inputs if narrow else calls[0].outputs
        return plan_chunks(tuple((v.size, v.itemsize) for v in values), self._capacity)

    def _written_dtype(self, call: Call, s: Slice) -> np.dtype[Any]:
        return (call.inputs if self._is_one_each else call.outputs)[s.value].dtype

    def _write(self, calls: Calls, chunk: Chunk, number: int) -> None:
        """Writes the sum of this process' replicas, and says so."""
        for s in chunk:
            terms = [c.inputs[s.value][s.start : s.stop] for c in calls]
            written = self._own.contribution(number, s.offset, s.stop - s.start, self._written_dtype(calls[0], s))
            reduce(terms, written)
            self.bytes_written += written.nbytes
        self._connections.send(number, calls[0].call_id)

    def _receive_all(self, calls: Calls, is_first: bool = False) -> None:
        for other in self._connections.others:
            # `receive_leaders_call_id` has taken this message.
            if is_first and other == LEADER:
                continue
            # A message about another call is a guess that its sender has given up.
            while self._connections.receive(other, self._number) != calls[0].call_id:
                pass

    def _contributions(self, offset: int, count: int, dtype: np.dtype[Any]) -> list[Array]:
        return [segment.contribution(self._number, offset, count, dtype) for segment in self._segments]

    def _shard(self, s: Slice, process: int) -> tuple[int, int]:
        return shard_bounds(s.stop - s.start, process, len(self._segments))


def _outputs(calls: Calls, chunk: Chunk) -> Iterator[tuple[Slice, list[Array]]]:
    for s in chunk:
        yield s, [c.outputs[s.value][s.start : s.stop] for c in calls]


@lru_cache(maxsize=4096)
def plan_chunks(sizes: tuple[tuple[int, int], ...], capacity: int) -> tuple[Chunk, ...]:
    """Distributes values over chunks, each exchanged between two waits.

    Args:
        sizes: Elements, and bytes per element, of each value.
        capacity: Most bytes of a chunk; a multiple of 64.
    """
    chunks: list[Chunk] = []
    slices: list[Slice] = []
    filled = 0
    for number, (count, width) in enumerate(sizes):
        start = 0
        while start < count:
            room = (capacity - filled) // width
            stop = min(count, start + room)
            if stop > start:
                slices.append(Slice(number, start, stop, filled))
                end = filled + (stop - start) * width
                # So that no two values share a line of the cache.
                filled = align_size(end)
            start = stop
            if filled >= capacity or room <= 0:
                chunks.append(tuple(slices))
                slices, filled = [], 0
    return (*chunks, tuple(slices)) if slices else tuple(chunks)


def shard_bounds(count: int, number: int, shards: int) -> tuple[int, int]:
    """Returns the first element of shard `number` of `count` elements, and the one after its last."""
    return count * number // shards, count * (number + 1) // shards


def reduce(terms: Sequence[Array], out: Array) -> None:
    """Writes the sum of `terms`, in their order, to `out`, which may be one of them only if there are two."""
    # The order is that of the processes, on all of them: so all get the same bits. Terms of type bfloat16 may have a
    # sum of type float32.
    if terms[0].dtype != out.dtype:
        _sum_bfloat16(terms, out)
    elif len(terms) == 1:
        np.copyto(out, terms[0])
    elif out.itemsize == 2 and out.dtype.kind not in "iu":
        # Half precision is summed in float32 and rounded once, as XLA does it.
        for rows in _blocks(out):
            total = terms[0][rows].astype(np.float32)
            for term in terms[1:]:
                total += term[rows].astype(np.float32)
            out[rows] = total.astype(out.dtype)
    elif len(terms) == 2:
        np.add(terms[0], terms[1], out=out)
    else:
        for rows in _blocks(out):
            block = out[rows]
            np.add(terms[0][rows], terms[1][rows], out=block)
            for term in terms[2:]:
                np.add(block, term[rows], out=block)


def _sum_bfloat16(terms: Sequence[Array], out: Array) -> None:
    scratch = np.empty(min(_BLOCK, out.size), np.float32)
    for rows in _blocks(out):
        block = out[rows]
        _widen(terms[0][rows], block)
        for term in terms[1:]:
            more = scratch[: block.size]
            _widen(term[rows], more)
            np.add(block, more, out=block)


def _widen(narrow: Array, wide: Array) -> None:
    """Writes bfloat16 numbers as float32: their bits are the upper half. It takes a third of the time of `astype`."""
    bits = wide.view(np.uint32)
    np.copyto(bits, narrow.view(np.uint16))
    np.left_shift(bits, 16, out=bits)


def _blocks(out: Array) -> Iterator[slice]:
    for start in range(0, out.size, _BLOCK):
        yield slice(start, start + _BLOCK)
