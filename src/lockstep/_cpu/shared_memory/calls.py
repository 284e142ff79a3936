"""A call of the all-reduce by a running program, of one replica."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from lockstep._cpu.shared_memory import abi

Array = np.ndarray[Any, Any]

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
    """One replica's part of a sum.

    Attributes:
        site: Which call of the program: the same number on all processes.
        replica: Number of the replica.
        inputs: Flat views of what the replica adds, in XLA's memory.
        outputs: Flat views of where it wants the sums; they may be the same memory.
    """

    def __init__(self, frame: abi.Frame) -> None:
        self._api = frame.api.contents
        arguments, results = frame.arguments, frame.results
        scalar = abi.Scalar.from_address(frame.attributes.items[0])
        self.site = ctypes.c_int64.from_address(scalar.value).value
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


def _view(address: int) -> Array:
    """A buffer's content, flat, where it is."""
    buffer = abi.Buffer.from_address(address)
    dtype = _DTYPES[buffer.dtype]
    count = 1
    for axis in range(buffer.rank):
        count *= buffer.dims[axis]
    memory: Any = _bytes(count * dtype.itemsize).from_address(buffer.data)
    return np.frombuffer(memory, dtype)


@lru_cache(maxsize=4096)
def _bytes(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    return ctypes.c_char * size
