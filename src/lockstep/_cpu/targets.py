"""Targets of XLA's custom calls on the CPU that are functions of Python."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from functools import wraps
from types import CodeType, FrameType
from typing import Any

from lockstep._cpu import abi

# By then XLA has most likely gone on; if not, the signal is put off once more.
_LATER_SECONDS = 0.01
# By name. XLA keeps a handler's address for ever, so Python must keep the handler.
_handlers: dict[str, Any] = {}


def is_supported() -> bool:
    """Returns whether the installed jax can call Python from its programs in this way."""
    try:
        from jax import ffi
    except ImportError:
        return False
    return all(hasattr(ffi, name) for name in ("ffi_call", "register_ffi_target"))


def names() -> list[str]:
    """Returns the names of the targets that are registered."""
    return list(_handlers)


def register(name: str, execute: Callable[[abi.Frame], None]) -> None:
    """Registers a target.

    Args:
        name: The target's name in programs.
        execute: Called with each call's frame, on the main thread or on one of XLA's. What it raises fails the program.
    """
    from jax import ffi

    def handle(address: int) -> int | None:
        frame = abi.Frame.from_address(address)
        if abi.answer_metadata(frame):
            return None
        try:
            execute(frame)
        # No exception can pass XLA: ctypes would print it and answer "no error".
        except BaseException as error:
            return abi.create_error(frame.api.contents, repr(error))
        return None

    defer_interrupts(handle)
    handler = abi.HANDLER(handle)
    _handlers[name] = handler
    ffi.register_ffi_target(name, abi.capsule(handler), platform="cpu", api_version=abi.TYPED)


def defer_interrupts(function: Callable[..., Any]) -> None:
    """Has SIGINT wait until `function` has returned, when it comes while the main thread runs it."""
    # A KeyboardInterrupt cannot pass XLA, and would be lost. The handler that is installed now is called then. From
    # another thread than the main one nothing changes.
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        return

    @wraps(handler)
    def handle(number: int, frame: FrameType | None) -> Any:
        if not _runs(function.__code__, frame):
            return handler(number, frame)
        again = threading.Timer(_LATER_SECONDS, _thread.interrupt_main, (number,))
        again.daemon = True
        again.start()
        return None

    signal.signal(signal.SIGINT, handle)


def _runs(code: CodeType, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
