"""The target of XLA's custom calls on the CPU: from a call frame to a `Call` that ends later."""

from __future__ import annotations

import _thread
import ctypes
import math
import signal
import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from types import CodeType, FrameType
from typing import Any

import ml_dtypes
import numpy as np

from lockstep._cpu.shared_memory import abi

Array = np.ndarray[Any, Any]

NAME = "lockstep_all_reduce"
# XLA_FFI_DataType.
_DTYPES: dict[int, np.dtype[Any]] = {
    **{2 + i: np.dtype(f"int{8 << i}") for i in range(4)},
    **{6 + i: np.dtype(f"uint{8 << i}") for i in range(4)},
    10: np.dtype("float16"),
    11: np.dtype("float32"),
    12: np.dtype("float64"),
    15: np.dtype("complex64"),
    16: np.dtype(ml_dtypes.bfloat16),
    18: np.dtype("complex128"),
}
SUMMABLE = frozenset(_DTYPES.values())
# By then XLA has most likely gone on; if not, the signal is put off once more.
_LATER_SECONDS = 0.01
# XLA keeps a handler's address for ever, so Python must keep the handler.
_handlers: list[Any] = []


class Call:
    """The part of one replica in a sum.

    Attributes:
        call_id: Which call of the program: the same number on all processes.
        replica: Number of the replica.
        inputs: Flat views of what the replica adds, in XLA's memory.
        outputs: Flat views of where it wants the sums; they may be the same memory.
    """

    def __init__(self, frame: abi.Frame) -> None:
        self._api = frame.api.contents
        arguments, results = frame.arguments, frame.results
        scalar = abi.Scalar.from_address(frame.attributes.items[0])
        self.call_id = ctypes.c_int64.from_address(scalar.value).value
        self.replica = int(_view(arguments.items[0])[0])
        self.inputs = [_view(arguments.items[i]) for i in range(1, arguments.size)]
        self.outputs = [_view(results.items[i]) for i in range(results.size)]
        self._future = abi.create_future(self._api)
        frame.future = self._future

    def succeed(self) -> None:
        """Lets the program go on; part of it may run inside of this call."""
        abi.set_available(self._api, self._future)

    def fail(self, reason: str) -> None:
        """Lets the program fail."""
        abi.set_error(self._api, self._future, reason)


def is_supported() -> bool:
    """Returns whether the installed jax can call Python from its programs in this way."""
    try:
        from jax import ffi
    except ImportError:
        return False
    return all(hasattr(ffi, name) for name in ("ffi_call", "pycapsule", "register_ffi_target"))


def register(submit: Callable[[Call], None]) -> None:
    """Registers the target; `submit` takes its calls from now on."""
    from jax import ffi

    # XLA calls this on the main thread or on one of its own.
    def handle(address: int) -> int | None:
        frame = abi.Frame.from_address(address)
        if abi.answer_metadata(frame):
            return None
        try:
            submit(Call(frame))
        # No exception can pass XLA: ctypes would print it and answer "no error".
        except BaseException as error:
            return abi.create_error(frame.api.contents, repr(error))
        return None

    defer_interrupts(handle)
    handler = abi.HANDLER(handle)
    _handlers.append(handler)
    ffi.register_ffi_target(NAME, ffi.pycapsule(handler), platform="cpu")


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


def _view(address: int) -> Array:
    """Returns a buffer's content, flat, without a copy."""
    buffer = abi.Buffer.from_address(address)
    dtype = _DTYPES[buffer.dtype]
    count = math.prod(buffer.dims[: buffer.rank])
    memory: Any = _bytes_type(count * dtype.itemsize).from_address(buffer.data)
    return np.frombuffer(memory, dtype)


# Making a ctypes array type takes longer than a small sum; programs have few sizes.
@lru_cache(maxsize=4096)
def _bytes_type(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    return ctypes.c_char * size
