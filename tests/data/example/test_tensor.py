from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lockstep.data._example import messages
from lockstep.data._example.tensor import decode_raw, parse_tensor, serialize_tensor
from lockstep.errors import ArgumentError, InputError

NAMES = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "c8", "c16", "?"]
DTYPES = [np.dtype(name) for name in NAMES]
# What tf.io.serialize_tensor of TensorFlow 2.15 returns.
TENSORFLOW: list[tuple[Any, str]] = [
    (np.float32([[1, 2]]), "08011208120208011202080222080000803f00000040"),
    (np.int64(7), "0809120022080700000000000000"),
    (np.zeros((0, 2), np.uint8), "08041206120012020802"),
    (np.array([True, False]), "080a12041202080222020100"),
    (np.array([b"a", b"bc"]), "080712041202080242016142026263"),
    (b"one", "0807120042036f6e65"),
]


@pytest.mark.parametrize(("value", "serialized"), TENSORFLOW)
def test_bytes_are_those_of_tensorflow(value: Any, serialized: str) -> None:
    assert serialize_tensor(value).hex() == serialized


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0))))
def test_what_was_serialised_is_parsed(array: Any) -> None:
    found = parse_tensor(serialize_tensor(array), array.dtype)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@given(hnp.arrays(object, hnp.array_shapes(min_dims=0, min_side=0), elements=st.binary(max_size=4)))
def test_text(array: Any) -> None:
    found = parse_tensor(serialize_tensor(array), "string")
    assert found.dtype == object and found.shape == array.shape and found.tolist() == array.tolist()


def test_bfloat16() -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(parse_tensor(serialize_tensor(array), ml_dtypes.bfloat16), array)


@pytest.mark.parametrize(
    ("fields", "dtype", "values"),
    [
        ({"dtype": 1, "float_val": [1, 2]}, "f4", [1, 2, 2]),
        ({"dtype": 4, "int_val": [7]}, "u1", [7, 7, 7]),
        ({"dtype": 7, "string_val": [b"a", b"b"]}, bytes, [b"a", b"b", b"b"]),
        ({"dtype": 8, "scomplex_val": [1, 2, 3, 4]}, "c8", [1 + 2j, 3 + 4j, 3 + 4j]),
        ({"dtype": 19, "half_val": [0x3C00]}, "f2", [1, 1, 1]),
        ({"dtype": 9}, "i8", [0, 0, 0]),
        ({"dtype": 8}, "c8", [0, 0, 0]),
        ({"dtype": 7}, bytes, [b"", b"", b""]),
    ],
)
def test_values_one_by_one(fields: dict[str, Any], dtype: Any, values: list[Any]) -> None:
    message = messages.TensorProto(**fields)
    message.tensor_shape.dim.add(size=3)
    assert parse_tensor(message.SerializeToString(), dtype).tolist() == values


def test_wrong_tensors() -> None:
    serialized = serialize_tensor(np.arange(3))
    with pytest.raises(InputError, match="holds int64, not float32"):
        parse_tensor(serialized, np.float32)
    with pytest.raises(InputError, match="cannot be parsed"):
        parse_tensor(serialized[:-1], np.int64)
    with pytest.raises(InputError, match="content is not of"):
        parse_tensor(messages.TensorProto(dtype=9, tensor_content=b"abc").SerializeToString(), np.int64)
    with pytest.raises(InputError, match="2 values for shape"):
        parse_tensor(messages.TensorProto(dtype=9, int64_val=[1, 2]).SerializeToString(), np.int64)
    for wrong in (lambda: parse_tensor(3, np.int64), lambda: parse_tensor(b"", np.dtype("M8[s]"))):
        with pytest.raises(ArgumentError):
            wrong()
    with pytest.raises(ArgumentError, match="holds text"):
        serialize_tensor(np.array([None]))


@given(hnp.arrays(st.sampled_from(DTYPES), st.integers(0, 9)), st.booleans())
def test_decode_raw(array: Any, little: bool) -> None:
    data = array.astype(array.dtype.newbyteorder("<" if little else ">")).tobytes()
    found = decode_raw(data, array.dtype, little)
    assert found.dtype == array.dtype and found.dtype.isnative
    np.testing.assert_array_equal(found, array)


def test_decode_raw_of_arrays() -> None:
    rows = np.array([[b"ab", b"cd"]], object)
    assert decode_raw(rows, np.uint8).tolist() == [[[97, 98], [99, 100]]]
    assert decode_raw([b"a", b"bcd"], np.uint8, fixed_length=2).tolist() == [[97, 0], [98, 99]]
    for wrong in ([b"a", b"bc"], b"abc"):
        with pytest.raises(InputError, match="multiple of the 2 bytes"):
            decode_raw(wrong, np.int16)
    with pytest.raises(ArgumentError, match="decode_raw takes bytes"):
        decode_raw("text", np.int16)
