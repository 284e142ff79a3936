"""Keeps Ctrl-C out of functions that XLA calls on the main thread: an exception cannot pass XLA, and would be lost."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from functools import wraps
from types import CodeType, FrameType
from typing import Any

# By then XLA has most likely gone on; if not, it is put off once more.
_LATER_SECONDS = 0.01


def keep_out_of(function: Callable[..., Any]) -> None:
    """Has SIGINT wait until `function` has returned, when it comes while the main thread runs it.

    The handler that is installed now is called then. From another thread than the main one nothing changes.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is threading.main_thread() and callable(handler):
        signal.signal(signal.SIGINT, _outside_of(function.__code__, handler))


def _outside_of(code: CodeType, handler: Callable[[int, FrameType | None], Any]) -> Callable[..., Any]:
    @wraps(handler)
    def handle(number: int, frame: FrameType | None) -> Any:
        if not _runs(code, frame):
            return handler(number, frame)
        again = threading.Timer(_LATER_SECONDS, _thread.interrupt_main, (number,))
        again.daemon = True
        again.start()
        return None

    return handle


def _runs(code: CodeType, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
