"""The target of XLA's custom calls on the CPU: from a call frame to a `Call` that ends later."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from lockstep._cpu import abi, targets

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


def register(submit: Callable[[Call], None]) -> None:
    """Registers the target; `submit` takes its calls from now on."""
    targets.register(NAME, lambda frame: submit(Call(frame)))


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
