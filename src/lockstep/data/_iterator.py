"""Iterators over a plan: they compute elements in groups, in order, and save their exact position."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from lockstep._nest import unpack
from lockstep._types import JSON, ArrayLike, Element, PyTree
from lockstep.data import _blocks, _columns
from lockstep.data._blocks import Block, FailedElement, elements_or_errors
from lockstep.data._columns import Ragged
from lockstep.data._plan import Cursor, EmptyCursor, Node, Run, State, decode_state, drop, encode_state, walk
from lockstep.data._structure import TEXT
from lockstep.errors import ArgumentError, EndOfDataError

_NOTHING = object()
# Written into positions, so that another format can be told from this one.
_VERSION = 1
# Elements are computed in groups that take about this long, and hold so much at most.
_GROUP_SECONDS = 0.001
_GROUP_BYTES = 2 << 20
_GROUP_LIMIT = 256
# A position: a state of the plan, and how many elements after it.
Mark = tuple[State, int]


class Optional:
    """An element, or its absence: the result of `get_next_as_optional`. Source: tf.experimental.Optional."""

    def __init__(self, value: Element = _NOTHING) -> None:
        self._value = value

    @classmethod
    def of_next(cls, iterator: Iterator[Element]) -> Optional:
        """Returns the next element of an iterator; at its end, one without a value."""
        # Not None, which an element may be.
        return cls(next(iterator, _NOTHING))

    def has_value(self) -> bool:
        """Returns whether there is an element."""
        return self._value is not _NOTHING

    def get_value(self) -> Any:
        """Returns the element.

        Raises:
            ArgumentError: If there is none.
        """
        if not self.has_value():
            raise ArgumentError(
                "The iterator has come to its end. Received: a request for its next element. Ask has_value."
            )
        return self._value


class PlanReader:
    """A reader of a plan's blocks that knows the position before each; `may_be_early` allows it to read ahead."""

    def __init__(self, plan: Node, run: Run) -> None:
        self._plan = plan
        self.run = run
        self._cursor: Cursor = plan.open(run)
        # A generator or a function with side effects would show that it was read ahead; a variable would be read too
        # early.
        self.may_be_early = plan.replayable and not plan.reads_variables
        self.asks_for_threads = plan.asks_for_threads

    def restore(self, state: State, passed: int) -> bool:
        """Goes to a position; returns whether the data reaches it."""
        self._cursor.restore(state)
        return drop(self._cursor, passed)

    def next(self, limit: int) -> tuple[Block, State] | None:
        """Returns the next elements, and the cursor's state before them."""
        before = self._cursor.state()
        # One at a time, so that the program's effects and the elements alternate as in a plain loop.
        block = self._cursor.next(limit if self.may_be_early else 1)
        return None if block is None else (block, before)

    def state(self) -> State:
        """Returns where the plan stands."""
        return self._cursor.state()

    def position(self, mark: Mark) -> dict[str, Any]:
        """Returns a mark as something that JSON can hold."""
        before, passed = mark
        return {
            "version": _VERSION,
            "plan": describe_plan(self._plan),
            "entropy": self.run.entropy,
            "iteration": list(self.run.iteration),
            "path": list(self.run.path),
            "cursor": encode_state(before),
            "passed": passed,
        }

    def close(self) -> None:
        """Drops the cursor, and with it the files it has open."""
        self._cursor = EmptyCursor()


def open_at(plan: Node, position: JSON) -> PlanReader:
    """Returns a reader of the plan from a position on; raises `ArgumentError` if it is not one of this plan."""
    if not isinstance(position, dict) or position.get("version") != _VERSION:
        raise ArgumentError(
            f"set_state needs what get_state returned (version {_VERSION}). Received: {str(position)[:80]}."
        )
    expected, received = describe_plan(plan), position["plan"]
    if expected != received:
        difference = next(
            (f"{a} instead of {b}" for a, b in zip(expected, received, strict=False) if a != b), "another length"
        )
        raise ArgumentError(
            "A position must be of a dataset made by the same transformations. Received: one of "
            f"{' < '.join(received)}; this dataset has {difference}. Build the dataset as it was built then."
        )
    result = PlanReader(plan, Run(position["entropy"], tuple(position["iteration"]), tuple(position["path"])))
    # A source that has become shorter is found here, not as a silent end of the data.
    if not result.restore(decode_state(position["cursor"]), position["passed"]):
        raise ArgumentError(
            f"A position must lie within the data. Received: one {position['passed']} elements after the last state "
            "that the data reaches. It has fewer elements than when the position was taken; use the same data."
        )
    return result


def describe_plan(plan: Node) -> list[str]:
    """Returns the labels of the plan's nodes, by which a position is matched with its plan."""
    return [node.label for node in walk(plan)]


class ElementStream:
    """A stream of computed elements: blocks are computed in groups, on several threads where one is slow.

    `compute` turns a block of elements into as many results.
    """

    def __init__(self, reader: PlanReader, compute: Callable[[Block], list[Any]], threads: int) -> None:
        self._reader = reader
        self._compute = compute
        self._threads = threads
        self._size = 1
        # Otherwise the caller computes the first group and sees how long it takes: of 16 photographs, 8 ms a pass.
        self._parallel = threads > 1 and reader.asks_for_threads
        self._under_way: deque[tuple[Future[tuple[list[Any], float]] | None, Block, State]] = deque()
        # The group that is being handed out: its results, and the state before it.
        self._ready: deque[Any] = deque()
        self._before = reader.state()
        self._passed = 0
        self._ended = False
        # What went wrong while reading ahead: it is raised in its turn.
        self._deferred: Exception | None = None

    def __next__(self) -> Any:
        """Returns the next result; an element that fails raises its error, and the next call goes on behind it."""
        if not self._ready:
            self._next_group()
        if not self._ready:
            raise StopIteration
        self._passed += 1
        result = self._ready.popleft()
        if isinstance(result, FailedElement):
            raise result.error
        return result

    def mark(self) -> Mark:
        """Returns the position after the last element that was handed out."""
        return self._before, self._passed

    def _next_group(self) -> None:
        # One more than threads, so that none is idle while a finished group is handed out.
        wanted = self._threads + 1 if self._parallel and self._reader.may_be_early else 1
        while len(self._under_way) < wanted and not self._ended and self._deferred is None:
            try:
                read = self._reader.next(self._size)
            except Exception as error:
                self._deferred = error
                break
            if read is None:
                self._ended = True
                break
            # Cheap groups are computed by the caller: handing them to a thread costs more than they do.
            future = _blocks.submit(self._compute_timed, read[0]) if self._parallel else None
            self._under_way.append((future, *read))
        if not self._under_way:
            # The elements before it have all been returned: now is its turn.
            failed, self._deferred = self._deferred, None
            if failed is not None:
                self._before, self._passed = self._reader.state(), 0
                raise failed
            return
        future, block, before = self._under_way.popleft()
        self._before, self._passed = before, 0
        results, seconds = self._compute_timed(block) if future is None else future.result()
        self._ready.extend(results)
        self._adapt(seconds, results)

    def _compute_timed(self, block: Block) -> tuple[list[Any], float]:
        start = time.perf_counter()
        results = elements_or_errors(block, self._compute)
        return results, time.perf_counter() - start

    def _adapt(self, seconds: float, results: list[Any]) -> None:
        """Doubles the group while it is quick and small, and turns to several threads when it is slow."""
        # Between the two bounds nothing changes, so that the size does not swing from group to group.
        if seconds < _GROUP_SECONDS / 2 and self._size < _GROUP_LIMIT:
            # One element stands for all: a sum would touch every array of the group.
            one = next((r for r in results if not isinstance(r, FailedElement)), None)
            each = max(_nbytes(one), 1)
            self._size = max(1, min(2 * self._size, _GROUP_BYTES // each))
        elif seconds > 2 * _GROUP_SECONDS and self._size > 1:
            self._size = max(self._size // 2, 1)
        self._parallel = self._threads > 1 and (self._parallel or seconds > _GROUP_SECONDS / 4)

    def close(self) -> None:
        """Stops computing, and closes the reader."""
        self._ended = True
        self._under_way.clear()
        self._reader.close()


class Prefetcher:
    """A thread that reads an element stream ahead into a queue, in which at most `size` elements wait."""

    def __init__(self, computed: ElementStream, size: int) -> None:
        self._queue: queue.Queue[tuple[str, Any, Any]] = queue.Queue(size)
        self._stop = threading.Event()
        self._last = computed.mark()
        self._ended: tuple[str, Any, Any] | None = None
        self._thread = threading.Thread(
            target=_prefetch_loop, args=(computed, self._queue, self._stop), name="lockstep-prefetch", daemon=True
        )
        # A loop that is left by `break` closes nothing; the thread ends with the iterator.
        weakref.finalize(self, self._stop.set)
        self._thread.start()

    def __next__(self) -> Any:
        # The end is returned again to whoever asks again, as iterators must.
        kind, value, mark = self._ended or self._queue.get()
        if kind == "element":
            self._last = mark
            return value
        if kind == "error":
            self._last = mark
            raise value
        self._ended = (kind, value, mark)
        if kind == "dead":
            raise value
        raise StopIteration

    def mark(self) -> Mark:
        """Returns the position after the last element that was handed out."""
        return self._last

    def close(self) -> None:
        """Stops the thread."""
        self._stop.set()


def _prefetch_loop(computed: ElementStream, ready: queue.Queue[Any], stop: threading.Event) -> None:
    def put(item: PyTree) -> None:
        while not stop.is_set():
            try:
                # A full queue whose reader is gone must not hold the thread: it looks at `stop` ten times a second.
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    try:
        while not stop.is_set():
            try:
                value = next(computed)
            except StopIteration:
                put(("end", None, None))
                return
            except Exception as error:  # Of one element; what follows it is read on.
                put(("error", error, computed.mark()))
            else:
                put(("element", value, computed.mark()))
    # Such as MemoryError or SystemExit: without this the reader would wait for ever.
    except BaseException as error:
        put(("dead", error, None))


class DatasetIterator:
    """An iterator over the elements of a dataset, whose position can be saved. Source: tf.data.Iterator."""

    def __init__(
        self,
        plan: Node,
        run: Run,
        convert: Callable[[Any], Any],
        threads: int,
        ahead: int,
        on_restore: Callable[[dict[str, Any]], None],
    ) -> None:
        self._plan = plan
        self._convert = convert
        self._threads = threads
        # How many elements are computed before they are asked for.
        self._size = ahead
        # Called with the position at which `set_state` continues.
        self._on_restore = on_restore
        self._start(PlanReader(plan, run))

    def _start(self, reader: PlanReader) -> None:
        self._reader = reader
        computed = ElementStream(reader, elements_of, self._threads)
        self._elements: ElementStream | Prefetcher = Prefetcher(computed, self._size) if self._size else computed

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        return self._convert(unpack(next(self._elements)))

    @property
    def element_spec(self) -> Any:
        """Returns the structure of `TensorSpec`s of the elements."""
        return unpack(self._plan.spec)

    def get_next(self) -> Any:
        """Returns the next element.

        Raises:
            EndOfDataError: At the end; it is a `StopIteration`.
        """
        try:
            return next(self)
        except StopIteration:
            raise EndOfDataError("The dataset has no next element. Iterate with for, or catch this error.") from None

    def get_next_as_optional(self) -> Optional:
        """Returns the next element as an `Optional`, without a value at the end."""
        return Optional.of_next(self)

    def get_state(self) -> dict[str, Any]:
        """Returns the position, small enough for a checkpoint: a JSON value, valid for the same dataset in any process.

        It includes the seeds of this pass. What comes after it is the same, bit for bit, as if nothing had happened in
        between, if the source and the map functions give the same again.
        """
        return self._reader.position(self._elements.mark())

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a position.

        Args:
            state: What `get_state` of an iterator of the same dataset returned.

        Raises:
            ArgumentError: If it belongs to another dataset.
        """
        reader = open_at(self._plan, state)
        self.close()
        self._start(reader)
        self._on_restore(state)

    def close(self) -> None:
        """Stops reading, and its thread."""
        self._elements.close()


def elements_of(block: Block) -> list[Any]:
    """Computes the elements of a block. They may be rows of the user's own arrays, so they cannot be written to."""
    # Views cost nothing; a copy of each element would double the traffic of arrays in memory.
    return _columns.elements(_columns.as_read_only(block.take()))


def _nbytes(element: Element) -> int:
    """Returns about how many bytes an element takes."""
    return sum(map(_nbytes_of_leaf, jax.tree.leaves(element)))


def _nbytes_of_leaf(leaf: ArrayLike | Ragged) -> int:
    if isinstance(leaf, Ragged):
        # 64: about the size of a Python object that has no nbytes, such as a dataset of `window`.
        return sum(getattr(value, "nbytes", 64) for value in leaf.values)
    if isinstance(leaf, np.ndarray) and leaf.dtype == TEXT:
        return sum(map(len, leaf.ravel()))
    return getattr(leaf, "nbytes", 64)
