"""Checkpoints that TensorFlow 2.15 wrote: every tensor is the one that TensorFlow reads, and damage is named.

`data/make.py` made them, and `expected.npz` beside each, by TensorFlow's own reader.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep import checkpoint
from lockstep.checkpoint._tensorflow import slices, snappy, table
from lockstep.checkpoint._tensorflow.bundle import Bundle
from lockstep.errors import CheckpointError, LockstepError
from tests.support.arrays import load_arrays

DATA = Path(__file__).parent / "data"
CASES = sorted(path.parent.name for path in DATA.glob("*/expected.npz"))


def prefix_of(case: str) -> str:
    (index,) = (DATA / case).rglob("*.index")
    return str(index).removesuffix(".index")


def expected_of(case: str) -> dict[str, Any]:
    return {name.replace("|", "/"): value for name, value in load_arrays(DATA / case / "expected.npz").items()}


@pytest.mark.parametrize("case", CASES)
def test_tensors_are_equal_bit_for_bit(case: str) -> None:
    reader, expected = checkpoint.load_checkpoint(prefix_of(case)), expected_of(case)
    assert reader.get_variable_to_shape_map() == {name: list(value.shape) for name, value in expected.items()}
    for name, value in expected.items():
        found = reader.get_tensor(name)
        if value.dtype.kind == "S":
            assert found.dtype == object
            assert found.astype("S").tolist() == value.tolist()
            continue
        # numpy's files know no bfloat16: its bits are compared.
        found = found.view(np.uint16) if found.dtype.name == "bfloat16" else found
        assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes()), name


def test_there_are_all_kinds() -> None:
    expected = expected_of("v1_dtypes")
    assert len({value.dtype for value in expected.values()}) >= 14
    assert len(list((DATA / "v1_shards").glob("*.data-*"))) == 2
    assert Bundle(prefix_of("v1_dtypes"))._tensors["pieces_1"].slices


def test_the_newest_of_a_directory_and_its_parts() -> None:
    newest = checkpoint.latest_checkpoint(DATA / "estimator_Adam")
    assert newest == prefix_of("estimator_Adam")
    assert checkpoint.all_checkpoints(DATA / "estimator_Adam") == [newest]
    assert checkpoint.checkpoint_exists(newest)
    loaded = checkpoint.load(newest)
    assert (loaded.step, loaded.extra) == (5, {})
    assert loaded.full_names == {name: name for name in loaded.arrays}
    # By the index, too, which is what people see in a directory; and as tensors are called.
    np.testing.assert_array_equal(
        checkpoint.load_variable(newest + ".index", "dense/bias:0"), loaded.arrays["dense/bias"]
    )
    objects = checkpoint.load(prefix_of("keras_sgd"))
    assert "layer_with_weights-1/bias/.ATTRIBUTES/VARIABLE_VALUE" in objects.arrays
    # By the name that the program knows, too.
    assert checkpoint.load_variable(prefix_of("tracked"), "save_counter") == 1


def copied(case: str, directory: Path) -> Path:
    return Path(shutil.copytree(DATA / case, directory / case))


@pytest.mark.parametrize("missing", ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    directory = copied("v1_dtypes", tmp_path)
    (directory / missing).unlink()
    with pytest.raises(CheckpointError, match=r"model\.ckpt-7"):
        checkpoint.load(directory / "model.ckpt-7")
    # Nothing begins anew beside it.
    with pytest.raises(CheckpointError, match="training would begin anew beside it"):
        checkpoint.load_newest(directory)


def read_all(prefix: Path) -> None:
    reader = checkpoint.load_checkpoint(prefix)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)


@given(data=st.data())
def test_a_damaged_file_raises_an_error_that_names_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from(["v1_dtypes", "v1_shards", "keras_legacy_adam"]))
    directory = copied(case, tmp_path_factory.mktemp("damaged"))
    file = data.draw(st.sampled_from(sorted(p for p in directory.iterdir() if ".index" in p.name or ".data" in p.name)))
    content = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    file.write_bytes(content)
    prefix = directory / Path(prefix_of(case)).name
    try:
        read_all(prefix)
    except LockstepError as error:
        assert str(prefix) in str(error)
    else:
        # Bytes that nothing reads: between values, and in the footer's padding.
        for name, value in expected_of(case).items():
            if value.dtype.kind != "S":
                assert checkpoint.load_variable(prefix, name).tobytes() == value.tobytes()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_table(content: bytes) -> None:
    with pytest.raises(ValueError):
        table.read_table(content)
    with pytest.raises(ValueError):
        table.read_table(content + bytes(40) + table.MAGIC)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_snappy_block(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert len(snappy.decompress(content)) <= 64 * len(content)


def literal(text: bytes) -> bytes:
    """An element of Snappy's format that holds bytes as they are."""
    size = len(text) - 1
    return bytes([size << 2]) + text if size < 60 else bytes([60 << 2, size]) + text


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x05" + literal(b"hello"), b"hello"),
        (b"\x64" + literal(bytes(100)), bytes(100)),
        # Copies with an offset of 11, 16 and 32 bits; one overlaps itself.
        (b"\x0a" + literal(b"abcd") + bytes([(6 - 4) << 2 | 1, 4]), b"abcdabcdab"),
        (b"\x08" + literal(b"abcd") + bytes([3 << 2 | 2, 4, 0]), b"abcdabcd"),
        (b"\x08" + literal(b"abcd") + bytes([3 << 2 | 3, 4, 0, 0, 0]), b"abcdabcd"),
        (b"\x09" + literal(b"a") + bytes([7 << 2 | 2, 1, 0]), b"a" * 9),
    ],
)
def test_snappy_blocks(block: bytes, text: bytes) -> None:
    assert snappy.decompress(block) == text


def test_a_table_with_compressed_blocks() -> None:
    """One block of two keys that share their beginning, and its index, both compressed."""

    def block(entries: bytes) -> bytes:
        plain = entries + bytes(4) + (1).to_bytes(4, "little")
        packed = bytes([len(plain)]) + literal(plain) + b"\x01"
        return packed + table.mask(google_crc32c.value(packed)).to_bytes(4, "little")

    first = block(b"\x00\x03\x01abcX" + b"\x02\x01\x01dY")
    handle = bytes([0, len(first) - 5])
    index = block(b"\x00\x03" + bytes([len(handle)]) + b"abd" + handle)
    footer = (bytes([0, 0, len(first), len(index) - 5])).ljust(40, b"\0") + table.MAGIC
    assert table.read_table(first + index + footer) == {b"abc": b"X", b"abd": b"Y"}


@pytest.mark.parametrize(
    ("extents", "key"),
    [
        # TensorFlow's own: tensorflow/core/lib/strings/ordered_code_test.cc says what numbers become.
        ([(0, -1)], b"\0v\x00\x01\x01\x01\x80\x7f"),
        ([(64, 63)], b"\0v\x00\x01\x01\x01\xc0\x40\xbf"),
        ([(8192, 100)], b"\0v\x00\x01\x01\x01\xe0\x20\x00\xc0\x64"),
    ],
)
def test_keys_of_pieces(extents: list[tuple[int, int]], key: bytes) -> None:
    assert slices.key_of(b"v", extents) == key
