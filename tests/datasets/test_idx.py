"""IDX files: what is written is read, and every damage is named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from lockstep.datasets._mnist import parse_idx, read_idx
from lockstep.errors import InputError
from tests.datasets.digits import idx

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
ARRAYS = st_numpy.arrays(np.uint8, st_numpy.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))


@settings(deadline=None)
@given(array=ARRAYS, compressed=st.booleans())
def test_what_is_written_is_read(array: np.ndarray, compressed: bool) -> None:
    content = gzip.compress(idx(array)) if compressed else idx(array)
    read = parse_idx(content, array.ndim, "file")
    assert read.dtype == np.uint8
    assert read.flags.writeable
    np.testing.assert_array_equal(read, array, strict=True)


@settings(deadline=None)
@given(data=st.data(), compressed=st.booleans())
def test_changed_bytes_give_an_array_or_an_error_that_names_the_file(data: st.DataObject, compressed: bool) -> None:
    content = bytearray(gzip.compress(idx(ARRAY), mtime=0) if compressed else idx(ARRAY))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    parse_or_refuse(bytes(content[: data.draw(st.integers(0, len(content)))]) + data.draw(st.binary(max_size=3)))


@settings(deadline=None)
@given(content=st.binary(max_size=64), prefix=st.sampled_from([b"", b"\x1f\x8b", b"\0\0\x08\x03"]))
def test_any_bytes_give_an_array_or_an_error_that_names_the_file(content: bytes, prefix: bytes) -> None:
    parse_or_refuse(prefix + content)


def parse_or_refuse(content: bytes) -> None:
    try:
        array = parse_idx(content, 3, "the-file")
    except InputError as error:
        assert str(error).startswith("the-file ")
    else:
        assert array.dtype == np.uint8
        assert array.ndim == 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "magic number 0x00000803 .*Received: an empty file"),
        (b"\0\0", "magic number 0x00000803 .*Received: 0x0000"),
        (b"<!DOCTYPE html>", "magic number 0x00000803 .*Received: 0x3c21444f"),
        (b"\0\0\x0d\x03" + idx(ARRAY)[4:], "magic number 0x00000803 .*Received: 0x00000d03"),
        (idx(ARRAY[0]), r"magic number 0x00000803 \(unsigned bytes, 3 dimensions\).*Received: 0x00000802"),
        (idx(ARRAY)[:10], "3 sizes of 4 bytes each. Received: 6 bytes"),
        (idx(ARRAY)[:-1], "promises 2 x 3 x 4 = 24 bytes of data. Received: 23"),
        (idx(ARRAY) + b"\0", "promises 2 x 3 x 4 = 24 bytes of data. Received: 25"),
        (struct.pack(">4B3I", 0, 0, 8, 3, *[2**32 - 1] * 3), r"= 79228162458924105385300197375 bytes .*Received: 0"),
        (gzip.compress(idx(ARRAY), mtime=0)[:-9], "gzip compression is broken"),
        (gzip.compress(idx(ARRAY), mtime=0) + b"more", "gzip compression is broken"),
        (b"\x1f\x8b\x08\0", "gzip compression is broken"),
    ],
)
def test_damage_is_named(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        read_idx(path, 3)
    assert str(caught.value).startswith(f"{path} is no complete IDX file.")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path} cannot be read: Is a directory"):
        read_idx(tmp_path, 1)
