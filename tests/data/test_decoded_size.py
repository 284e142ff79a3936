"""Few bytes that stand for many: refused by what their headers say, before memory is taken."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep import _decoded_size
from lockstep.data._files.records import open_text
from lockstep.data._files.tfrecord import TFRecordWriter, open_tfrecord
from lockstep.errors import ArgumentError, InputError


def jpeg(height: int, width: int) -> bytes:
    """A small image whose header says another size."""
    found = tf.io.encode_jpeg(np.zeros((8, 8, 3), np.uint8)).numpy()
    frame = found.index(b"\xff\xc0")
    return found[: frame + 5] + struct.pack(">HH", height, width) + found[frame + 9 :]


def png(height: int, width: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def gif(height: int, width: int, frames: int = 1) -> bytes:
    frame = b"!\xf9\x04\0\0\0\0\0," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\0"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + frame * frames + b";"


def bmp(height: int, width: int) -> bytes:
    """Compressed by lengths of runs."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, 8, 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 1090, 0, 0, 1078) + header + bytes(1024) + b"\xff\0\0\1"


def tensor(*shape: int) -> bytes:
    """What TensorFlow writes of zeros: a type, a shape, and no values."""
    dims = b"".join(b"\x12" + bytes([1 + len(n)]) + b"\x08" + n for n in map(varint, shape))
    return b"\x08\x01\x12" + varint(len(dims)) + dims


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


IMAGES: dict[str, tuple[Callable[[Any], Any], bytes, str]] = {
    "JPEG": (
        tf.io.decode_jpeg,
        jpeg(30_000, 31_000),
        "JPEG image whose header says 30000 x 31000 pixels: 2,790,",
    ),
    "PNG": (tf.io.decode_png, png(30_000, 31_000), "PNG image whose header says 30000 x 31000 pixels: 3,720,000,000"),
    "GIF": (tf.io.decode_gif, gif(3_000, 3_100, 50), "GIF image whose header says 3000 x 3100 pixels in 50 frames"),
    "BMP": (tf.io.decode_bmp, bmp(-20_000, 21_000), "BMP image whose header says 20000 x 21000 pixels: 1,680,000,000"),
    "any": (tf.io.decode_image, jpeg(65_000, 65_000), "JPEG image whose header says 65000 x 65000 pixels"),
    "TensorProto": (lambda b: tf.io.parse_tensor(b, tf.float32), tensor(1 << 40), r"tensor_shape is \[1099511627776\]"),
}


@pytest.mark.parametrize(("decode", "content", "message"), IMAGES.values(), ids=IMAGES)
def test_a_header_beyond_the_limit(decode: Callable[[Any], Any], content: bytes, message: str) -> None:
    assert len(content) < 2_000
    with pytest.raises(InputError, match=f"{message}.*LOCKSTEP_MAX_DECODED_BYTES"):
        decode(content)


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tf.io.parse_tensor(tensor(1000), tf.float32).shape == (1000,)
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", "3999")
    with pytest.raises(InputError, match=r"4,000 bytes once decoded, and at most 3,999 are taken"):
        tf.io.parse_tensor(tensor(1000), tf.float32)
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", "much")
    with pytest.raises(ArgumentError, match=r"must be a positive number of bytes\. Received: 'much'"):
        tf.io.parse_tensor(tensor(1000), tf.float32)


def test_animations_count_their_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", str(7 * 9 * 4 * 3))
    assert tf.io.decode_gif(gif(7, 9, 3)).shape == (3, 7, 9, 3)
    with pytest.raises(InputError, match="in 4 frames"):
        tf.io.decode_gif(gif(7, 9, 4))
    # Of which one is decoded.
    assert tf.io.decode_image(gif(7, 9, 4), expand_animations=False).shape == (7, 9, 3)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_a_record_beyond_the_limit(tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records"
    with TFRecordWriter(path, compression) as writer:
        writer.write(b"first")
        writer.write(bytes(5_000_000))
    assert path.stat().st_size < 10_000
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", "1000000")
    reader = open_tfrecord(path, compression)
    found = reader.read(1)
    assert found is not None
    assert list(found) == [b"first"]
    with pytest.raises(InputError, match=r"records: record 1, at byte 21, whose header says 5000000 bytes: 5,000,000"):
        reader.read(1)


def test_a_record_that_lies_in_the_file_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TFRecordWriter(tmp_path / "records") as writer:
        writer.write(bytes(5_000))
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", "1000")
    found = open_tfrecord(tmp_path / "records").read(1)
    assert found is not None
    assert len(found[0]) == 5_000


def test_a_line_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"first\n" + bytes(5_000_000)))
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", "1000000")
    reader = open_text(path, "GZIP")
    assert reader.read(1) is not None
    with pytest.raises(InputError, match=r"lines.gz: line 1, at byte 6, which has not ended by then: .*1,000,000"):
        reader.read(1)


def test_compressed_bytes_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", "1000")
    for compression, pack in (("GZIP", gzip.compress), ("ZLIB", zlib.compress)):
        assert tf.io.decode_compressed(pack(bytes(1000)), compression).numpy() == bytes(1000)
        with pytest.raises(InputError, match=r"bytes of decode_compressed: more than 1,000 bytes once decoded"):
            tf.io.decode_compressed(pack(bytes(1001)), compression)


def test_parts_after_each_other_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_MAX_DECODED_BYTES", "1000")
    parts = gzip.compress(bytes(400)) + gzip.compress(bytes(600))
    assert _decoded_size.inflate(parts + bytes(10), 31, "it") == bytes(1000)
    with pytest.raises(InputError):
        _decoded_size.inflate(parts + gzip.compress(b"x"), 31, "it")
    with pytest.raises(EOFError):
        _decoded_size.inflate(parts[:-9], 31, "it")
