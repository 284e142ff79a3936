"""Arrays as bytes: raw, and as TensorFlow's TensorProto.

Source: tf.io.decode_raw, serialize_tensor, parse_tensor; tensorflow/core/framework/types.proto.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import ml_dtypes
import numpy as np

from lockstep import _decoded_size
from lockstep._types import ArrayLike, DType
from lockstep.data._files.stream import to_text_array
from lockstep.errors import ArgumentError, InputError

_Array = np.ndarray[Any, np.dtype[Any]]
_TEXT = np.dtype(object)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# DataType, and the field that holds values one by one.
_TYPES: dict[np.dtype[Any], tuple[int, str]] = {
    np.dtype(np.float32): (1, "float_val"),
    np.dtype(np.float64): (2, "double_val"),
    np.dtype(np.int32): (3, "int_val"),
    np.dtype(np.uint8): (4, "int_val"),
    np.dtype(np.int16): (5, "int_val"),
    np.dtype(np.int8): (6, "int_val"),
    _TEXT: (7, "string_val"),
    np.dtype(np.complex64): (8, "scomplex_val"),
    np.dtype(np.int64): (9, "int64_val"),
    np.dtype(np.bool_): (10, "bool_val"),
    _BFLOAT16: (14, "half_val"),
    np.dtype(np.uint16): (17, "int_val"),
    np.dtype(np.complex128): (18, "dcomplex_val"),
    np.dtype(np.float16): (19, "half_val"),
    np.dtype(np.uint32): (22, "uint32_val"),
    np.dtype(np.uint64): (23, "uint64_val"),
}


def decode_raw(
    input_bytes: ArrayLike, out_type: DType, little_endian: bool = True, fixed_length: int | None = None
) -> _Array:
    """Reads bytes as numbers.

    Args:
        input_bytes: `bytes`, or an array of them that all have one length.
        out_type: The type of the numbers.
        little_endian: Whether the least significant byte comes first.
        fixed_length: To how many bytes to cut or, with zeros, pad; `None`: not.

    Returns:
        The shape of `input_bytes`, and a last axis of the numbers.

    Raises:
        InputError: If the bytes are no whole number of numbers, or differ in length.
        ArgumentError: If an argument is wrong.

    Source: tf.io.decode_raw.
    """
    dtype = np.dtype(out_type)
    rows = np.asarray(input_bytes, object)
    if dtype.hasobject or any(not isinstance(row, (bytes, bytearray)) for row in rows.flat):
        raise ArgumentError(
            f"decode_raw takes bytes and the type of numbers; received {dtype} and {input_bytes!r:.80}."
        )
    pieces = [bytes(row) for row in rows.flat]
    if fixed_length is not None:
        pieces = [piece[:fixed_length].ljust(fixed_length, b"\0") for piece in pieces]
    lengths = {len(piece) for piece in pieces}
    if len(lengths) > 1 or any(length % dtype.itemsize for length in lengths):
        raise InputError(
            f"decode_raw: {sorted(lengths)[:5]} bytes must be one length, a multiple of the {dtype.itemsize} bytes of "
            f"{dtype}. Check out_type, or pass fixed_length."
        )
    # Always said, so that the result does not depend on the machine.
    order = "<" if little_endian else ">"
    numbers = np.frombuffer(b"".join(pieces), dtype.newbyteorder(order)).astype(dtype)
    return numbers.reshape(*rows.shape, max(lengths, default=0) // dtype.itemsize)


def serialize_tensor(tensor: ArrayLike) -> bytes:
    """Returns an array of numbers or text as a serialised TensorProto, the same bytes as TensorFlow's.

    Raises:
        ArgumentError: If TensorFlow has no such type.

    Source: tf.io.serialize_tensor.
    """
    array = np.asarray(tensor)
    if array.dtype.kind in "SU":
        array = array.astype(object)
    array = array.astype(_check_dtype(array.dtype), copy=False)
    messages = importlib.import_module("lockstep.data._example.messages")
    message = messages.TensorProto(dtype=_TYPES[array.dtype][0])
    # A scalar has an empty shape, which TensorFlow writes, and proto3 would leave out.
    message.tensor_shape.SetInParent()
    for size in array.shape:
        message.tensor_shape.dim.add(size=size)
    if array.dtype == _TEXT:
        for value in array.flat:
            if not isinstance(value, (bytes, str)):
                raise ArgumentError(f"an object array holds text (bytes or str), not {type(value).__name__}.")
            message.string_val.append(value.encode() if isinstance(value, str) else value)
    else:
        # Little endian, as TensorFlow's own files are.
        message.tensor_content = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return message.SerializeToString()


def parse_tensor(serialized: ArrayLike, out_type: DType) -> _Array:
    """Returns the array that a serialised TensorProto holds.

    Args:
        serialized: `bytes`.
        out_type: The type that it has; text is `object`, `bytes` or "string".

    Raises:
        InputError: If it is no TensorProto, or one of another type.

    Source: tf.io.parse_tensor.
    """
    messages = importlib.import_module("lockstep.data._example.messages")
    if isinstance(serialized, np.ndarray) and serialized.ndim == 0:
        serialized = serialized.item()
    if not isinstance(serialized, (bytes, bytearray)):
        raise ArgumentError(f"a serialised tensor is bytes, not {type(serialized).__name__}.")
    try:
        message = messages.TensorProto.FromString(bytes(serialized))
    except importlib.import_module("google.protobuf.message").DecodeError as error:
        raise _no_tensor(serialized, "it cannot be parsed") from error
    dtype = _check_dtype(out_type)
    if message.dtype != _TYPES[dtype][0]:
        stored = next((str(known) for known, (number, _) in _TYPES.items() if number == message.dtype), "no known type")
        raise InputError(f"the serialised tensor holds {stored}, not {dtype}. Pass that out_type.")
    return _content(message, dtype, serialized)


def _content(message: Any, dtype: np.dtype[Any], serialized: ArrayLike) -> _Array:
    shape = tuple(dim.size for dim in message.tensor_shape.dim)
    count = math.prod(shape)
    # Raw bytes, the usual form; values one by one come from programs that build the message by hand.
    if message.tensor_content:
        if len(message.tensor_content) != count * dtype.itemsize or dtype == _TEXT:
            raise _no_tensor(serialized, f"its content is not of {dtype} {shape}")
        return np.frombuffer(message.tensor_content, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    # An element of text is a reference, to one and the same value where values are left out.
    _decoded_size.check(count * dtype.itemsize, f"a TensorProto whose tensor_shape is {list(shape)} of {dtype}")
    values = _to_array(getattr(message, _TYPES[dtype][1]), dtype)
    if len(values) > count or min(shape, default=0) < 0:
        raise _no_tensor(serialized, f"it has {len(values)} values for shape {shape}")
    if len(values) < count:  # TensorFlow leaves out repetitions of the last value
        last = values[-1:] if len(values) else _to_array([b""] if dtype == _TEXT else [0, 0], dtype)[:1]
        values = np.concatenate([values, np.repeat(last, count - len(values))])
    return values.reshape(shape)


def _to_array(values: Any, dtype: np.dtype[Any]) -> _Array:
    if dtype == _TEXT:
        return to_text_array(values)
    if dtype.kind == "c":
        return np.array(values, np.float64).reshape(-1, 2).astype(dtype.type(0).real.dtype).view(dtype)[:, 0]
    if dtype in (np.float16, _BFLOAT16):
        # half_val holds the bits of each number in an integer.
        return np.array(values, np.uint16).view(dtype)
    return np.array(values, dtype)


def _check_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype in (bytes, str) or getattr(dtype, "name", dtype) == "string":
        return _TEXT
    known = np.dtype(getattr(dtype, "as_numpy_dtype", dtype)).newbyteorder("=")
    if known not in _TYPES:
        raise ArgumentError(f"TensorFlow has no type {dtype!r}. Use one of {', '.join(map(str, _TYPES))}.")
    return known


def _no_tensor(serialized: ArrayLike, reason: str) -> InputError:
    return InputError(f"{len(serialized)} bytes are no serialised tensor: {reason}. Write them with serialize_tensor.")
