from __future__ import annotations

import gc
import gzip
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.data._files import tfrecord
from lockstep.data._files.stream import Stream
from lockstep.data._files.tfrecord import TFRecordOptions, TFRecordWriter, open_tfrecord
from lockstep.errors import ArgumentError, DataNotFoundError, InputError
from tests.data.files.reading import check_positions, elements

records = st.lists(st.binary(max_size=60), max_size=30)
compressions = st.sampled_from(["", "GZIP", "ZLIB"])
files = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Of what TensorFlow 2.15 writes for the same records: the first bytes, and a checksum of all.
TENSORFLOW_WROTE = "000000000000000029039807d8ea82a20800000000000000ff86240f6c6f636b73746570d7adff72"
TENSORFLOW_CRC32 = 364362099


def write(path: Path, values: list[bytes], options: str | TFRecordOptions | None = None) -> Path:
    with TFRecordWriter(path, options) as writer:
        for value in values:
            writer.write(value)
    return path


@files
@given(records, compressions)
def test_what_was_written_is_read(tmp_path: Path, values: list[bytes], compression: str) -> None:
    path = write(tmp_path / "a", values, compression)
    assert elements(open_tfrecord(path, compression)) == values


@files
@given(records, compressions, st.lists(st.integers(1, 9), max_size=6))
def test_every_position_can_be_continued_from(
    tmp_path: Path, values: list[bytes], compression: str, limits: list[int]
) -> None:
    path = write(tmp_path / "a", values, compression)
    check_positions(lambda: open_tfrecord(path, compression), limits)


@pytest.mark.parametrize("chunk", [1, 20, 100])
def test_chunks_and_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(tfrecord, "_CHUNK", chunk)
    monkeypatch.setattr(tfrecord, "_BLOCK", 3)
    values = [bytes([index]) * (index * 7 % 40) for index in range(50)]
    path = write(tmp_path / "a", values)
    assert elements(open_tfrecord(path)) == values
    check_positions(lambda: open_tfrecord(path), [3, 1, 20])


def test_large_records(tmp_path: Path) -> None:
    values = [np.random.default_rng(0).bytes(size) for size in (3_000_000, 0, 1, 5_000_000)]
    path = write(tmp_path / "a", values)
    assert elements(open_tfrecord(path)) == values


def test_every_flipped_byte_is_detected_and_what_lies_before_is_read(tmp_path: Path) -> None:
    values = [b"first", b"", b"third record"]
    whole = write(tmp_path / "a", values).read_bytes()
    ends = [21, 37, 65]
    for index in range(len(whole)):
        broken = bytearray(whole)
        broken[index] ^= 0x10
        (tmp_path / "b").write_bytes(broken)
        number = sum(index >= end for end in ends)
        expect_failure(tmp_path / "b", values[:number], f"record {number}, at byte {[0, *ends][number]}, ")


def test_every_truncation_is_detected(tmp_path: Path) -> None:
    values = [b"first", b"", b"third record"]
    whole = write(tmp_path / "a", values).read_bytes()
    ends = [0, 21, 37, 65]
    for size in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:size])
        number = sum(size >= end for end in ends[1:])
        if size in ends:
            assert elements(open_tfrecord(tmp_path / "b")) == values[:number]
        else:
            expect_failure(tmp_path / "b", values[:number], f"record {number}, at byte {ends[number]}, .*the file ends")


def expect_failure(path: Path, before: list[bytes], message: str) -> None:
    reader = open_tfrecord(path)
    found: list[bytes] = []
    with pytest.raises(InputError, match=f"{re.escape(str(path))}: {message}"):
        while (portion := reader.read(10)) is not None:
            found += list(portion)
    assert found == before
    with pytest.raises(InputError, match=message):
        reader.read(1)
    reader.close()


def test_a_record_number_is_known_after_a_seek(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"abc"] * 10)
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    reader = open_tfrecord(path)
    reader.seek(19 * 9)
    with pytest.raises(InputError, match=r"record 9, at byte 171, .*checksum of its data"):
        reader.read(1)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_broken_compression_is_detected(tmp_path: Path, compression: str) -> None:
    whole = write(tmp_path / "a", [np.random.default_rng(0).bytes(150), b"abc"], compression).read_bytes()
    for size in range(1, len(whole)):
        (tmp_path / "b").write_bytes(whole[:size])
        with pytest.raises(InputError, match=f"{compression}: it ends before"):
            elements(open_tfrecord(tmp_path / "b", compression))
    (tmp_path / "b").write_bytes(b"no compressed data")
    with pytest.raises(InputError, match=f"cannot be decompressed as {compression}"):
        elements(open_tfrecord(tmp_path / "b", compression))


def test_the_wrong_compression_type_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"abc"], "GZIP")
    with pytest.raises(InputError, match="If it is compressed, or no TFRecord file"):
        open_tfrecord(path).read(1)


def test_compressed_parts_in_one_file(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a", [b"a"]), write(tmp_path / "b", [b"b"])
    (tmp_path / "c").write_bytes(gzip.compress(one.read_bytes()) + gzip.compress(two.read_bytes()) + bytes(100))
    assert elements(open_tfrecord(tmp_path / "c", "GZIP")) == [b"a", b"b"]
    (tmp_path / "d").write_bytes(zlib.compress(one.read_bytes()) + zlib.compress(two.read_bytes()))
    assert elements(open_tfrecord(tmp_path / "d", "ZLIB")) == [b"a", b"b"]


def test_uncompressed_files_are_those_of_tensorflow(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"", b"lockstep", bytes(range(256)) * 3])
    assert path.read_bytes()[:40].hex() == TENSORFLOW_WROTE
    assert zlib.crc32(path.read_bytes()) == TENSORFLOW_CRC32


def test_options_are_honoured(tmp_path: Path) -> None:
    values = [b"abc" * 1000]
    small = write(tmp_path / "a", values, TFRecordOptions("ZLIB", 9, window_bits=12, mem_level=4))
    stored = write(tmp_path / "b", values, TFRecordOptions("ZLIB", compression_level=0))
    assert small.stat().st_size < 200 < 3000 < stored.stat().st_size
    assert elements(open_tfrecord(small, "ZLIB")) == elements(open_tfrecord(stored, "ZLIB")) == values


@pytest.mark.parametrize("options", [("LZ4",), ("GZIP", 10), ("GZIP", 1, 8), ("GZIP", 1, 15, 0), ("", 1, 15, 8, 9)])
def test_wrong_options(options: tuple[object, ...]) -> None:
    with pytest.raises(ArgumentError):
        TFRecordOptions(*options)  # type: ignore[arg-type]


def test_a_writer(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "a")
    writer.write("text")
    writer.write(memoryview(b"view"))
    writer.flush()
    assert elements(open_tfrecord(tmp_path / "a")) == [b"text", b"view"]
    with pytest.raises(ArgumentError, match="SerializeToString"):
        writer.write(3)  # type: ignore[arg-type]
    writer.close()
    writer.close()
    with pytest.raises(ArgumentError, match="closed"):
        writer.write(b"late")
    with pytest.raises(ArgumentError, match="cannot be written"):
        TFRecordWriter(tmp_path / "none" / "a")


def test_what_was_flushed_can_be_decompressed(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a", "GZIP") as writer:
        writer.write(b"early")
        writer.flush()
        assert b"early" in zlib.decompressobj(31).decompress((tmp_path / "a").read_bytes())


def test_missing_files_and_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="none"):
        open_tfrecord(str(tmp_path / "none").encode())
    with pytest.raises(ArgumentError, match="LZ4"):
        open_tfrecord(tmp_path, "LZ4")
    with pytest.raises(InputError, match="cannot be opened"):
        open_tfrecord(tmp_path)
    with pytest.raises(ArgumentError, match="file name"):
        open_tfrecord(3)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_position_beyond_the_end(tmp_path: Path, compression: str) -> None:
    reader = open_tfrecord(write(tmp_path / "a", [b"abc"], compression), compression)
    with pytest.raises(InputError, match="shorter than it was"):
        reader.seek(1000)


@pytest.mark.slow
def test_a_reading_given_up_in_a_cycle_gives_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: warned.append(event.exc_value))
    (tmp_path / "a").write_bytes(b"abc")
    stream = Stream(str(tmp_path / "a"))
    file = stream._file
    cycle: list[object] = [stream]
    cycle.append(cycle)
    # A collection while something else holds the file moves the stream behind it, to be finalized after it.
    del stream
    gc.collect()
    del file, cycle
    gc.collect()
    assert not warned
