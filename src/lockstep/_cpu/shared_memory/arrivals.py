"""Calls of running programs, sorted into sums that all replicas of this process have reached."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Sequence

from lockstep._cpu.shared_memory.calls import Call


class Arrivals:
    """Calls as they come.

    Args:
        replicas: Numbers of this process' replicas.
    """

    def __init__(self, replicas: Sequence[int]) -> None:
        self._replicas = tuple(replicas)
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._waiting: dict[tuple[int, int], deque[Call]] = {}
        self._ready: dict[int, deque[list[Call]]] = {}
        self._closed = False

    def put(self, call: Call) -> None:
        """Adds a call; from any thread."""
        self._calls.put(call)

    def close(self) -> None:
        """Lets the waits end; from any thread."""
        self._calls.put(None)

    def first(self) -> list[Call] | None:
        """Waits for a sum that all replicas have reached: their calls, in the order of the replicas."""
        while not self._ready:
            if not self._receive(None):
                return None
        return self._taken(next(iter(self._ready)))

    def of(self, site: int, seconds: float) -> list[Call] | None:
        """Waits for the sum at `site`; `None` if not all replicas get there in time."""
        deadline = time.monotonic() + seconds
        while site not in self._ready:
            if not self._receive(deadline - time.monotonic()):
                return None
        return self._taken(site)

    def put_back(self, calls: list[Call]) -> None:
        """Makes `calls` the next ones of their site again."""
        self._ready.setdefault(calls[0].site, deque()).appendleft(calls)

    def here(self) -> list[Call]:
        """Returns all calls that are here."""
        ready = (call for found in self._ready.values() for calls in found for call in calls)
        return [*ready, *(call for calls in self._waiting.values() for call in calls)]

    def one(self) -> Call | None:
        """Waits for the next call, of any replica; `None` after `close`."""
        return None if self._closed else self._calls.get()

    def _receive(self, seconds: float | None) -> bool:
        """Sorts the next call in; returns whether there was one."""
        try:
            call = self._calls.get(timeout=None if seconds is None else max(0.0, seconds))
        except queue.Empty:
            return False
        if call is None:
            self._closed = True
            return False
        self._sort(call)
        return True

    def _sort(self, call: Call) -> None:
        self._waiting.setdefault((call.site, call.replica), deque()).append(call)
        columns = [self._waiting.get((call.site, replica)) for replica in self._replicas]
        if all(columns):
            self._ready.setdefault(call.site, deque()).append([c.popleft() for c in columns if c])

    def _taken(self, site: int) -> list[Call]:
        found = self._ready[site]
        calls = found.popleft()
        if not found:
            del self._ready[site]
        return calls
