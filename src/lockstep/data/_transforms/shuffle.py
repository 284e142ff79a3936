"""`shuffle`: tf.data's algorithm, on references to elements.

A buffer is filled with the first elements. Then each step gives out the one in a random slot, and the next element
takes its place; at the end, what is left comes out in random order. A buffer as large as the dataset gives a uniformly
random order. The slots depend on the seed, the pass and the step alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lockstep.data._blocks import Block, Store, mix_rows
from lockstep.data._columns import Rows
from lockstep.data._plan import CHUNK, INFINITE, Cursor, Node, Run, State, Transformation
from lockstep.errors import ArgumentError

# int64 (3, n): of each element its store's number, its row there, and its ordinal (how many were read before it).
References = NDArray[np.int64]
_EMPTY: References = np.empty((3, 0), np.int64)
_STORE, _ROW, _ORDINAL = range(3)
# Steps are numbered in chunks below this one, which is for the order of the rest.
_REST_CHUNK = 2**40


class Shuffle(Transformation):
    """The elements in another order, by a buffer of `size` elements; `None` for all of them."""

    def __init__(self, upstream: Node, size: int | None, seed: int | None, each_iteration: bool) -> None:
        super().__init__(upstream)
        # It would read until the memory is full.
        if size is None and upstream.cardinality == INFINITE:
            raise ArgumentError(
                "shuffle of an endless dataset needs a buffer_size, because it reads so many elements first. Received: "
                "none. Example: shuffle(10000)"
            )
        self._size = size
        self._seed = seed
        self._each_iteration = each_iteration

    def open(self, run: Run) -> Cursor:
        def draws(chunk: int) -> np.random.Generator:
            return run.random(self._seed, chunk, self._each_iteration)

        # References to a generator's elements hold the elements: it is read only as far as needed.
        ahead = CHUNK if self.upstream.replayable else 0
        return _ShuffleCursor(self.upstream.open(run), self._size or 2**62, draws, ahead)

    @property
    def label(self) -> str:
        return f"Shuffle({self._size}, {self._seed}, {self._each_iteration})"


class _ShuffleCursor:
    """The shuffle buffer, many steps at a time.

    `draws` returns the random generator for a chunk of steps; `ahead` elements may be read beyond what is needed.
    """

    def __init__(self, upstream: Cursor, size: int, draws: Callable[[int], np.random.Generator], ahead: int) -> None:
        self._reader = _Reader(upstream, ahead)
        self._size = size
        self._draws = draws
        self._slots = _Slots(draws, size)
        # The full buffer, slot by slot; the slot whose element is out and not replaced yet; what waits to enter.
        self._buffer: References | None = None
        self._hole: int | None = None
        self._queue = _EMPTY
        self._step = 0
        # In the end: what is left, in random order, whether that is all there ever was, and how much of it is out.
        self._rest: References | None = None
        self._is_all = False
        self._out = 0

    def next(self, limit: int) -> Block | None:
        if self._rest is None:
            self._fill(limit)
        if self._rest is None:
            out = self._from_buffer(limit)
        else:
            out = self._rest[:, self._out : self._out + limit]
            self._out += out.shape[1]
        return self._reader.block(out) if out.shape[1] else None

    def _fill(self, limit: int) -> None:
        """Reads the elements of the next steps. If the buffer cannot be kept full, it becomes the rest."""
        vacant = self._size if self._buffer is None else int(self._hole is not None)
        self._queue, failed = self._reader.fill(self._queue, vacant + limit - 1)
        if failed is not None:
            raise failed
        if self._queue.shape[1] < vacant:
            self._begin_rest()
        elif self._buffer is None:
            self._buffer, self._queue = self._queue[:, : self._size].copy(), self._queue[:, self._size :]
        elif vacant:
            self._buffer[:, self._hole] = self._queue[:, 0]
            self._queue = self._queue[:, 1:]
        self._hole = None

    def _from_buffer(self, limit: int) -> References:
        """Takes elements from random slots of the buffer. All but the last slot are refilled at once."""
        assert self._buffer is not None
        count = min(limit, self._queue.shape[1] + 1)
        slots = self._slots.take(self._step, count)
        incoming, self._queue = self._queue[:, : count - 1], self._queue[:, count - 1 :]
        out = self._buffer[:, slots]
        order = np.argsort(slots, kind="stable")
        again = np.flatnonzero(slots[order][1:] == slots[order][:-1])
        # A slot that comes up again holds what took it last.
        out[:, order[again + 1]] = incoming[:, order[again]]
        self._buffer[:, slots[:-1]] = incoming
        self._hole = int(slots[-1])
        self._step += count
        return out

    def _begin_rest(self) -> None:
        left = self._queue if self._buffer is None else np.delete(self._buffer, self._holes, axis=1)
        # Then the seed alone gives the order, and a state needs no list of what is left.
        self._is_all = self._buffer is None
        self._rest = left[:, self._draws(_REST_CHUNK).permutation(left.shape[1])]

    @property
    def _holes(self) -> list[int]:
        return [] if self._hole is None else [self._hole]

    def state(self) -> State:
        # A buffer for everything: the order is a permutation by the seed, and needs no saving.
        if self._is_all:  # The seed gives their order.
            return {"kind": "all", "out": self._out, **self._reader.state(0)}
        if self._rest is not None:
            rest = self._rest[_ORDINAL, self._out :]
            return {"kind": "rest", "rest": rest, **self._reader.state(int(rest.min()) if len(rest) else None)}
        if self._buffer is None:
            return {"kind": "start", **self._reader.state(0)}
        ordinals = self._buffer[_ORDINAL].copy()
        # A hole's element is out already: it must not be read again.
        first = np.delete(ordinals, self._holes).min(initial=self._reader.count)
        queued = self._queue.shape[1]
        oldest = min(int(first), self._reader.count - queued)
        return {
            "kind": "buffer",
            "buffer": ordinals,
            "hole": self._hole,
            "queued": queued,
            "step": self._step,
            **self._reader.state(oldest),
        }

    def restore(self, state: State) -> None:
        read = self._reader.restore(state)
        kind = state["kind"]
        if kind == "start":
            self._queue = read
        elif kind == "all":
            self._queue = read
            self._begin_rest()
            self._out = state["out"]
        elif kind == "rest":
            self._rest = self._reader.rows_with_ordinals(read, np.asarray(state["rest"]))
        elif kind == "buffer":
            self._hole, self._step = state["hole"], state["step"]
            self._buffer = self._reader.rows_with_ordinals(read, np.asarray(state["buffer"]))
            self._queue = read[:, read.shape[1] - state["queued"] :]


class _Slots:
    """The random slots of all steps."""

    def __init__(self, draws: Callable[[int], np.random.Generator], size: int) -> None:
        self._draws = draws
        self._size = size
        self._chunk = -1
        self._drawn: Rows = np.empty(0, np.int64)

    def take(self, step: int, count: int) -> Rows:
        """Returns int64 (count,), the slots of the steps from `step` on."""
        parts: list[Rows] = []
        while count > 0:
            chunk, place = divmod(step, CHUNK)
            if chunk != self._chunk:
                self._chunk, self._drawn = chunk, self._draws(chunk).integers(0, self._size, CHUNK)
            # By chunks of numbered steps: the same slots whatever the limits of `next` are.
            parts.append(self._drawn[place : place + count])
            step, count = step + len(parts[-1]), count - len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class _Reader:
    """A reader of the upstream that can read again every element that is still referred to."""

    def __init__(self, upstream: Cursor, ahead: int) -> None:
        self._upstream = upstream
        self._ahead = ahead
        self._ended = False
        self.count = 0
        # The ordinal of the first element of each piece, and the upstream's state before it.
        self._marks: deque[tuple[int, State]] = deque()
        # How many elements were read before each one that failed.
        self._failures: list[int] = []
        self._numbers: dict[int, int] = {}
        self._stores: dict[int, Store] = {}
        self._live: dict[int, int] = {}
        self._next_number = 0

    def fill(self, queue: References, wanted: int) -> tuple[References, Exception | None]:
        """Returns `queue` with further elements, until it has so many, or there are no more, or one fails."""
        parts = [queue]
        missing = wanted - queue.shape[1]
        failed: Exception | None = None
        try:
            while missing > 0 and (part := self._piece(max(min(missing, CHUNK), self._ahead))) is not None:
                parts.append(part)
                missing -= part.shape[1]
        except Exception as error:
            self._failures.append(self.count)
            failed = error
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), failed

    def _piece(self, limit: int) -> References | None:
        mark = (self.count, None if self._ended else self._upstream.state())
        block = None if self._ended else self._upstream.next(limit)
        if block is None:
            self._ended = True
            return None
        self._marks.append(mark)
        number = self._numbers.get(id(block.store))
        if number is None:
            number = self._numbers[id(block.store)] = self._next_number
            self._next_number += 1
            self._stores[number], self._live[number] = block.store, 0
        self._live[number] += len(block)
        # Ordinals identify elements in states: rows of stores do not, as stores are made anew.
        ordinals = np.arange(self.count, self.count + len(block))
        self.count += len(block)
        return np.stack([np.full(len(block), number), block.rows, ordinals])

    def block(self, out: References) -> Block:
        """Returns elements as a block, and forgets them."""
        # One source, the usual case: nothing needs to be counted or mixed.
        if len(self._stores) == 1:
            return Block(next(iter(self._stores.values())), out[_ROW])
        numbers, which, counts = np.unique(out[_STORE], return_inverse=True, return_counts=True)
        result = mix_rows([self._stores[int(n)] for n in numbers], which, out[_ROW])
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._live[number] -= count
            # A store whose elements are all out is dropped, and with it what it holds: blocks of files, arrays.
            if self._live[number] == 0:
                del self._live[number], self._numbers[id(self._stores.pop(number))]
        return result

    def rows_with_ordinals(self, read: References, ordinals: Rows) -> References:
        """Returns the references with these ordinals; an ordinal that was not read (of a hole) gets the first."""
        if not read.shape[1]:
            return np.zeros((3, len(ordinals)), np.int64)
        places = ordinals - (self.count - read.shape[1])
        return read[:, np.clip(places, 0, read.shape[1] - 1)]

    def state(self, oldest: int | None) -> dict[str, State]:
        """Returns the state from which to read again from the element with ordinal `oldest`, or from here."""
        if oldest is None or oldest >= self.count:
            return {"first": self.count, "count": self.count, "upstream": self._upstream.state(), "ended": self._ended}
        # States before the oldest element that is still in the buffer are not needed again.
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            self._marks.popleft()
        first, before = self._marks[0]
        failures = sum(place > first for place in self._failures)
        return {
            "first": first,
            "count": self.count,
            "upstream": before,
            "ended": self._ended,
            "failures": failures,
        }

    def restore(self, state: State) -> References:
        """Reads again the elements that a state refers to, and returns them."""
        self._upstream.restore(state["upstream"])
        self.count = state["first"]
        parts = [_EMPTY]
        failures = state.get("failures", 0)
        while (missing := state["count"] - self.count) or len(self._failures) < failures:
            try:
                part = self._piece(min(missing, CHUNK) or 1)
            except Exception:  # It was raised when these elements were first read.
                self._failures.append(self.count)
                continue
            if part is None:
                break
            parts.append(part)
        self._ended = state["ended"]
        return np.concatenate(parts, axis=1)
