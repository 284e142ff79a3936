"""The closures that a coordinator has scheduled: which wait, which are under way, and the first error among them."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lockstep._engine.servers.closures.plan import Plan
from lockstep._types import Array
from lockstep.errors import CancelledError

# As TensorFlow's: `schedule` waits while so many closures do.
_MOST_WAITING = 256 * 1024
# A closure whose every worker goes is what ends them.
_MOST_ATTEMPTS = 10
_POLL_SECONDS = 1.0


@dataclass(eq=False)
class Closure:
    """A call of a function that was scheduled.

    Attributes:
        ticket: Its number: effects of one ticket are applied once.
        name: Of the function, for messages.
        prepare: Returns the plan and the arguments for a worker, by its number. What it draws it keeps.
        accept: Takes the results.
        refuse: Takes the error that ends it.
        attempts: How often it was given to a worker.
    """

    ticket: int
    name: str
    prepare: Callable[[int], tuple[Plan, Mapping[str, Array]]]
    accept: Callable[[Mapping[str, Array]], None]
    refuse: Callable[[BaseException], None]
    attempts: int = 0


@dataclass
class ClosureQueue:
    """Waiting closures, in order. Safe for threads.

    Attributes:
        staleness: How many earlier closures may be unfinished when one begins; `None` for any number.
    """

    staleness: int | None = None
    _waiting: deque[Closure] = field(default_factory=deque[Closure])
    _running: dict[int, Closure] = field(default_factory=dict[int, Closure])
    _error: BaseException | None = None
    _next_ticket: int = 0

    def __post_init__(self) -> None:
        """Makes what threads wait on."""
        self._changed = threading.Condition()

    @property
    def finished_below(self) -> int:
        """The first ticket that is not finished; all below are."""
        with self._changed:
            # What waits is in order, and may be a hundred thousand.
            waiting = [self._waiting[0].ticket] if self._waiting else []
            return min([*waiting, *self._running], default=self._next_ticket)

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing waits or is under way."""
        with self._changed:
            return not self._waiting and not self._running

    def put(self, make: Callable[[int], Closure]) -> Closure:
        """Appends the closure that `make` returns for a ticket.

        Raises:
            BaseException: The first error of a closure since the last one was raised.
        """
        with self._changed:
            self._raise_error()
            while len(self._waiting) >= _MOST_WAITING:
                self._changed.wait(_POLL_SECONDS)
                self._raise_error()
            closure = make(self._next_ticket)
            self._next_ticket += 1
            self._waiting.append(closure)
            self._changed.notify_all()
            return closure

    def take(self, seconds: float) -> Closure | None:
        """Returns the next closure, which is then under way; `None` if there is none within `seconds`."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._error is not None or not self._waiting or not self._is_allowed(self._waiting[0]):
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            closure = self._waiting.popleft()
            closure.attempts += 1
            self._running[closure.ticket] = closure
            return closure

    def finish(self, closure: Closure, results: Mapping[str, Array]) -> None:
        """Notes that a closure is computed, and its effects are on all servers."""
        closure.accept(results)
        with self._changed:
            self._running.pop(closure.ticket, None)
            self._changed.notify_all()

    def put_back(self, closure: Closure, error: BaseException) -> None:
        """Has another worker compute a closure; its workers have gone, the last one with this error."""
        if closure.attempts >= _MOST_ATTEMPTS:
            self.fail(closure, error)
            return
        with self._changed:
            del self._running[closure.ticket]
            if self._error is not None:
                self._cancel(closure)
            else:
                earlier = itertools.takewhile(lambda c: c.ticket < closure.ticket, self._waiting)
                self._waiting.insert(sum(1 for _ in earlier), closure)
            self._changed.notify_all()

    def fail(self, closure: Closure | None, error: BaseException) -> None:
        """Notes an error, which `put`, `check` or `join` raises; what waits is cancelled.

        Args:
            closure: The one that has failed; `None` for an error of the whole job.
            error: The error.
        """
        if closure is not None:
            closure.refuse(error)
        with self._changed:
            self._error = self._error or error
            if closure is not None:
                self._running.pop(closure.ticket, None)
            while self._waiting:
                self._cancel(self._waiting.popleft())
            self._changed.notify_all()

    def check(self) -> None:
        """Raises the first error, once nothing is under way."""
        with self._changed:
            self._raise_error()

    def join(self, check: Callable[[], None]) -> None:
        """Waits until all closures are finished.

        Args:
            check: Called about once a second; raises what ends the wait.

        Raises:
            BaseException: The first error of a closure; none is under way then, and those that waited are cancelled.
        """
        with self._changed:
            while self._error is None and (self._waiting or self._running):
                self._changed.wait(_POLL_SECONDS)
                check()
            self._raise_error()

    def wait_until_idle(self, check: Callable[[], None]) -> None:
        """Waits until no closure waits or is under way, whatever has come of them."""
        with self._changed:
            while self._waiting or self._running:
                self._changed.wait(_POLL_SECONDS)
                check()

    def _is_allowed(self, closure: Closure) -> bool:
        if self.staleness is None or not self._running:
            return True
        return closure.ticket - min(self._running) <= self.staleness

    def _raise_error(self) -> None:
        if self._error is None:
            return
        # As in TensorFlow: whoever catches the error may go on, and nothing of before comes in between.
        while self._running:
            self._changed.wait(_POLL_SECONDS)
        error, self._error = self._error, None
        raise error

    @staticmethod
    def _cancel(closure: Closure) -> None:
        closure.refuse(
            CancelledError(
                f"A closure is computed unless one before it has failed. Received: {closure.name}, which was cancelled "
                "by the error that schedule, join or done raises. Schedule it again after that."
            )
        )
