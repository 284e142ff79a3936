"""The target of XLA's custom calls that oneDNN computes."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence

import jax

from lockstep._cpu import abi, targets
from lockstep._cpu.onednn.calls import Call, as_text, from_text
from lockstep._cpu.onednn.library import Library, load
from lockstep._cpu.onednn.memory import Arena
from lockstep._cpu.onednn.operation import Operation

NAME = "lockstep_onednn"


def compute(call: Call, *operands: jax.Array) -> jax.Array:
    """Computes a call with one result, in a program for CPU devices that XLA does not divide."""
    (result,) = compute_all(call, *operands)
    return result


def compute_all(call: Call, *operands: jax.Array) -> Sequence[jax.Array]:
    """Computes the results of a call."""
    operations()
    results = [jax.ShapeDtypeStruct(shape, operands[0].dtype) for shape in call.results]
    return jax.ffi.ffi_call(NAME, results)(*operands, call=as_text(call))


@functools.cache
def operations() -> Operations:
    """Returns the operations of this process; the first call registers them with XLA."""
    dnnl = load()
    assert dnnl is not None
    made = Operations(dnnl)
    targets.register(NAME, made.execute)
    return made


class Operations:
    """The operations of this process: each call's is prepared once."""

    def __init__(self, dnnl: Library) -> None:
        self._dnnl = dnnl
        self._arena = Arena()
        self._prepared: dict[bytes, Operation] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Returns how many calls have been prepared."""
        return len(self._prepared)

    def execute(self, frame: abi.Frame) -> None:
        """Carries out a call of a program."""
        text = abi.ByteSpan.from_address(frame.attributes.items[0])
        key = ctypes.string_at(text.data, text.size)
        operation = self._prepared.get(key)
        if operation is None:
            operation = self._prepare(key)
        first, second, *bias = _addresses(frame.arguments)
        result, *bias_gradient = _addresses(frame.results)
        operation.run([first, second, result, *bias, *bias_gradient])

    def _prepare(self, key: bytes) -> Operation:
        with self._lock:
            if key not in self._prepared:
                call = from_text(key.decode())
                self._prepared[key] = Operation(self._dnnl, call, self._arena)
            return self._prepared[key]


def _addresses(items: abi.Items) -> list[int]:
    return [abi.Buffer.from_address(items.items[i]).data for i in range(items.size)]
