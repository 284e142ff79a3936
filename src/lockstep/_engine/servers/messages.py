"""Messages between the tasks of a job with parameter servers: what they hold, and their bytes.

A message is a fixed header, a JSON object, and raw little-endian arrays whose dtypes and shapes the object lists. The
exchange of gradients and values, of which there is one a step and server, has no JSON: the layout, which both sides
have, says what follows; see `exchange`. Nothing is unpickled or evaluated, and every size is checked before memory is
taken for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Kind of frame; bytes of JSON, or of the exchange's own header; bytes of arrays.
HEADER = struct.Struct("<B3xIQ")
MESSAGE, BEAT, EXCHANGE, REPLY, PROBLEM = range(5)
# A layout of 10,000 variables with their optimizer's programs takes some megabytes.
MAX_JSON = 64 << 20
# Of one message. Larger variables travel in pieces of `PIECE_BYTES`.
MAX_ARRAYS = 1 << 30
PIECE_BYTES = 16 << 20
# Of dtypes that travel, by name. bfloat16 and the float8 types are numpy's by ml_dtypes, which jax brings.
_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128 "  # noqa: SIM905
    "float8_e4m3fn float8_e5m2".split()
)
_MAX_NDIM = 32


class Superseded(Exception):
    """Signal that the servers went back to a cut, or begin anew: what was leased before is void.

    A worker goes on with `Call.next_epoch`, the chief with `Call.recover`.
    """


class ProtocolError(Exception):
    """Error of a peer that sends what no task of this version sends; it is never shown to users."""


@dataclass
class Message:
    """A request or an answer: its kind, a JSON object, and arrays by name."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])


def dtype_of(name: object) -> np.dtype[Any]:
    """Returns the dtype of that name, in little-endian order; `ProtocolError` if it is none that travels."""
    if name not in _DTYPES:
        raise ProtocolError(f"dtype {name!r:.40}")
    text = str(name)
    if text.startswith(("bfloat", "float8")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, text))
    return np.dtype(text).newbyteorder("<")


def encode(message: Message) -> list[bytes | memoryview]:
    """Returns a message as buffers to send one after another; arrays are not copied."""
    arrays = {name: _little_endian(array) for name, array in message.arrays.items()}
    listing = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps([message.kind, message.facts, listing]).encode()
    size = sum(array.nbytes for array in arrays.values())
    header = HEADER.pack(MESSAGE, len(text), size)
    return [header + text, *(view_of(array) for array in arrays.values() if array.nbytes)]


def decode(text: bytes | bytearray | memoryview, size: int, read_into: Callable[[memoryview], None]) -> Message:
    """Returns the message with the JSON `text`, whose arrays, of `size` bytes in all, `read_into` fills.

    Raises:
        ProtocolError: If it is no message, or its arrays are not of that size.
    """
    try:
        kind, facts, listing = json.loads(bytes(text))
        shapes = [(str(name), dtype_of(dtype), _shape(shape)) for name, dtype, shape in listing]
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"no message: {error}") from error
    if not isinstance(kind, str) or not isinstance(facts, dict):
        raise ProtocolError("no message")
    if sum(_nbytes(dtype, shape) for _, dtype, shape in shapes) != size:
        raise ProtocolError(f"arrays that are not of {size} bytes")
    arrays: dict[str, Array] = {}
    for name, dtype, shape in shapes:
        arrays[name] = np.empty(shape, dtype)
        if arrays[name].nbytes:
            read_into(view_of(arrays[name]))
    return Message(kind, facts, arrays)


def view_of(array: Array) -> memoryview:
    """Returns the bytes of a contiguous array."""
    # Through uint8, because numpy exports no buffer of bfloat16; flattened first, because a scalar has no last axis.
    return array.reshape(-1).view(np.uint8).data


def _little_endian(array: Array) -> Array:
    array = np.asarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(array.shape)


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _MAX_NDIM:
        raise ProtocolError("a shape")
    for size in shape:
        if type(size) is not int or not 0 <= size <= MAX_ARRAYS:
            raise ProtocolError("a shape")
    return tuple(shape)


def _nbytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = dtype.itemsize
    for length in shape:
        size *= length  # Python's integers do not overflow.
    return size
