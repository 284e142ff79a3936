"""Makes the all-reduce a target of XLA's custom calls on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep._cpu.shared_memory import abi, interrupts
from lockstep._cpu.shared_memory.calls import Call

NAME = "lockstep_all_reduce"
# XLA keeps the handler's address for ever.
_handlers: list[Any] = []


def is_supported() -> bool:
    """Whether the installed jax can call Python from its programs in this way."""
    try:
        from jax import ffi
    except ImportError:
        return False
    return all(hasattr(ffi, name) for name in ("ffi_call", "pycapsule", "register_ffi_target"))


def register(submit: Callable[[Call], None]) -> None:
    """Registers the target; `submit` takes its calls from now on."""
    from jax import ffi

    def handle(address: int) -> int | None:
        return _handle(address, submit)

    interrupts.keep_out_of(handle)
    handler = abi.HANDLER(handle)
    _handlers.append(handler)
    ffi.register_ffi_target(NAME, ffi.pycapsule(handler), platform="cpu")


def _handle(address: int, submit: Callable[[Call], None]) -> int | None:
    """Called by XLA, on the main thread or one of its own; returns an error or nothing."""
    frame = abi.Frame.from_address(address)
    if abi.answer_metadata(frame):
        return None
    try:
        submit(Call(frame))
    except BaseException as error:  # It must not leave Python here.
        return abi.create_error(frame.api.contents, repr(error))
    return None
