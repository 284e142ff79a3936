"""The thread that matches the calls of all processes' replicas, and has their values summed.

One thread does it, a sum at a time. XLA's threads only leave their calls here, so none of them is held while others
are waited for, and the program goes on meanwhile with whatever does not need the sum.

The processes may reach independent sums in different orders. The first process takes its sums as they come, and the
others follow it: one that has guessed otherwise begins again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from lockstep._cpu.shared_memory.connections import Connections
from lockstep._cpu.shared_memory.custom_call import Call
from lockstep._cpu.shared_memory.exchange import LEADER, Exchange
from lockstep._cpu.shared_memory.shm import Segment
from lockstep.errors import LockstepError

_CLOSE_SECONDS = 5.0


class Engine:
    """Carries out sums.

    Args:
        connections: To the other processes.
        segments: Each process's memory, in their order.
        capacity: Bytes of a chunk.
        replicas: Numbers of this process' replicas.
        is_one_each: Whether each process has one replica; see `Exchange`.
    """

    def __init__(
        self,
        connections: Connections,
        segments: Sequence[Segment],
        capacity: int,
        replicas: Sequence[int],
        is_one_each: bool,
    ) -> None:
        self._connections = connections
        self._exchange = Exchange(connections, segments, capacity, is_one_each)
        self._queue = CallQueue(replicas)
        self._completion = CompletionThreads()
        self._current: list[Call] = []
        self._thread = threading.Thread(target=self._serve, name="lockstep-sums", daemon=True)
        self._thread.start()

    @property
    def bytes_written(self) -> int:
        """The bytes that this process has written so far for the others to read."""
        return self._exchange.bytes_written

    def submit(self, call: Call) -> None:
        """Takes a call of one replica; it ends later."""
        self._queue.put(call)

    def close(self) -> None:
        """Ends the thread, and the connections to the others."""
        self._queue.close()
        self._connections.close()
        self._thread.join(_CLOSE_SECONDS)
        self._completion.close()

    def _serve(self) -> None:
        while calls := self._queue.get_any():
            self._current = calls
            try:
                self._carry_out()
            except BaseException as error:
                # The programs that wait must hear of it, whatever it is; no later sum can be right either.
                return self._abort(error)
            for call in self._current:
                self._completion.run(call.succeed)

    def _carry_out(self) -> None:
        """Adds up what `_current` wants, or what the first process wants instead."""
        self._exchange.begin(self._current)
        if self._connections.process != LEADER:
            self._follow(self._exchange.receive_leaders_call_id())
        self._exchange.finish(self._current)

    def _follow(self, call_id: int) -> None:
        """Gives the sum up that was begun, if the first process has begun another one."""
        if call_id == self._current[0].call_id:
            return
        self._queue.put_back(self._current)
        self._current = []
        calls = self._queue.get(call_id, self._connections.seconds)
        if calls is None:
            raise self._connections.late_error([LEADER], self._connections.process)
        self._current = calls
        self._exchange.begin(calls)

    def _abort(self, error: BaseException) -> None:
        if not isinstance(error, LockstepError):
            name = self._connections.names[self._connections.process]
            error = LockstepError(f"{name} failed while it added up: {error!r}.")
        # So that the others do not wait for this process' part.
        self._connections.abort(str(error))
        text = f"{type(error).__name__}: {error}"
        for call in (*self._current, *self._queue.pending()):
            self._completion.run(partial(call.fail, text))
        while call := self._queue.get_single():
            self._completion.run(partial(call.fail, text))


class CallQueue:
    """Calls as they come, sorted into sums that all replicas of this process have reached."""

    def __init__(self, replicas: Sequence[int]) -> None:
        self._replicas = tuple(replicas)
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        # By call id and replica, then by call id alone.
        self._waiting: dict[tuple[int, int], deque[Call]] = {}
        self._ready: dict[int, deque[list[Call]]] = {}
        self._closed = False

    def put(self, call: Call) -> None:
        """Adds a call; from any thread."""
        self._calls.put(call)

    def close(self) -> None:
        """Lets the waits end; from any thread."""
        self._calls.put(None)

    def get_any(self) -> list[Call] | None:
        """Waits for a sum that all replicas have reached: their calls, in the order of the replicas."""
        while not self._ready:
            if not self._receive(None):
                return None
        return self._pop(next(iter(self._ready)))

    def get(self, call_id: int, seconds: float) -> list[Call] | None:
        """Waits for the sum `call_id`; `None` if not all replicas get there in time."""
        deadline = time.monotonic() + seconds
        while call_id not in self._ready:
            if not self._receive(max(0.0, deadline - time.monotonic())):
                return None
        return self._pop(call_id)

    def put_back(self, calls: list[Call]) -> None:
        """Makes `calls` the next ones of their id again."""
        self._ready.setdefault(calls[0].call_id, deque()).appendleft(calls)

    def pending(self) -> list[Call]:
        """Returns all calls that are here."""
        ready = (call for sums in self._ready.values() for calls in sums for call in calls)
        return [*ready, *(call for calls in self._waiting.values() for call in calls)]

    def get_single(self) -> Call | None:
        """Waits for the next call, of any replica; `None` after `close`."""
        return None if self._closed else self._calls.get()

    def _receive(self, seconds: float | None) -> bool:
        """Sorts the next call in; returns whether there was one."""
        try:
            call = self._calls.get(timeout=seconds)
        except queue.Empty:
            return False
        if call is None:
            self._closed = True
            return False
        self._waiting.setdefault((call.call_id, call.replica), deque()).append(call)
        columns = [self._waiting.get((call.call_id, replica)) for replica in self._replicas]
        if all(columns):
            self._ready.setdefault(call.call_id, deque()).append([c.popleft() for c in columns if c])
        return True

    def _pop(self, call_id: int) -> list[Call]:
        sums = self._ready[call_id]
        calls = sums.popleft()
        if not sums:
            del self._ready[call_id]
        return calls


class CompletionThreads:
    """A pool that never makes work wait for other work, on which XLA's programs go on after a sum.

    To tell XLA that a sum is there may run the rest of its program, which may wait for another replica of this process:
    so each call that waits to be told has a thread of its own, and never the one that adds up.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def run(self, work: Callable[[], None]) -> None:
        """Runs `work` on a thread that does nothing else."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"lockstep-sum-{self._threads}", daemon=True).start()
        self._work.put(work)

    def close(self) -> None:
        """Ends the threads, when they have done what they do."""
        with self._lock:
            for _ in range(self._threads):
                self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._idle += 1
