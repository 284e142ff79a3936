"""The signals that ask the launcher to end."""

from __future__ import annotations

import signal
import threading
from collections import deque
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Collects Ctrl-C, SIGTERM and SIGHUP inside its `with` block instead of being ended by them.

    A signal that was ignored before, as under nohup, stays ignored. Outside the main thread nothing is collected.
    """

    def __init__(self) -> None:
        self._received: deque[signal.Signals] = deque()
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def any(self) -> bool:
        """Whether a signal waits to be taken."""
        return bool(self._received)

    def take(self) -> signal.Signals | None:
        """Return the earliest signal that was not taken yet, if any."""
        return self._received.popleft() if self._received else None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._receive) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))
