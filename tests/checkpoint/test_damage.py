"""Damaged files and files made to do harm: a CheckpointError that says what is wrong, never anything else."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.checkpoint import CheckpointStore, all_checkpoints, latest_checkpoint, list_variables, load, load_variable
from lockstep.errors import CheckpointError
from tests.checkpoint.support import forge, metadata, npy

SAVED = {"dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([7, 8]), "none": np.zeros(0)}
EXTRA = {"epoch": 3, "who": "me"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with CheckpointStore(tmp_path) as store:
        return Path(store.save(120, SAVED, EXTRA) + ".npz")


def contents(file: Path) -> Any:
    found = load(file)
    return found.step, found.extra, found.time, {name: (a.dtype, a.tolist()) for name, a in found.arrays.items()}


def test_every_single_wrong_byte_is_found_or_harmless(saved: Path) -> None:
    whole, expected, found = saved.read_bytes(), contents(saved), 0
    for position in range(len(whole)):
        wrong = bytearray(whole)
        wrong[position] ^= 0x41
        saved.write_bytes(wrong)
        try:
            assert contents(saved) == expected
        except CheckpointError as error:
            assert str(saved) in str(error)
            found += 1
    # Harmless are dates, versions and rights, which the archive keeps twice for each part.
    assert found > len(whole) // 2


def test_every_truncation_is_found(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in range(len(whole)):
        saved.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="is not a usable checkpoint"):
            load(saved)
        assert all_checkpoints(saved.parent) == []


@given(data=st.data())
def test_whatever_is_pasted_into_a_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    file = tmp_path_factory.getbasetemp() / "pasted-1.npz"
    forge(file, metadata({"a": ["<f4", [2]]}), {"a.npy": npy("<f4", (2,), b"12345678")})
    whole = file.read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    file.write_bytes(whole[:start] + data.draw(st.binary(max_size=40)) + whole[end:])
    try:
        load(file)
    except CheckpointError as error:
        assert str(file) in str(error)


def test_the_variable_and_the_cause_are_named(saved: Path) -> None:
    whole = saved.read_bytes()
    position = whole.index(SAVED["dense/kernel"].tobytes())
    saved.write_bytes(whole[: position + 4] + b"\x01" + whole[position + 5 :])
    for read in (load, lambda file: load_variable(file, "dense/kernel")):
        with pytest.raises(CheckpointError, match=r"model\.ckpt-120\.npz .*'dense/kernel' .*checksum is .* instead of"):
            read(saved)
    assert load_variable(saved, "bias").tolist() == [7, 8]
    assert [name for name, _ in list_variables(saved)] == ["bias", "dense/kernel", "none"]


class Trap:
    """What would run if it were unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._file),)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    trap = np.array([Trap(sprung)], object)
    np.savez(tmp_path / "plain-1.npz", a=trap)
    member = io.BytesIO()
    np.save(member, trap)
    body = pickle.dumps(Trap(sprung))
    for number, said in enumerate([["O", [1]], ["|O", [1]], ["<f8", [1]], ["|u1", [len(body)]]]):
        forge(tmp_path / f"said-{number}.npz", metadata({"a": said}), {"a.npy": member.getvalue()})
    header = npy("|u1", (len(body),), b"").replace(b"'|u1'", b"'|O8'")
    forge(tmp_path / "fits-1.npz", metadata({"a": ["|u1", [len(body)]]}), {"a.npy": header + body})
    forge(tmp_path / "bare-1.npz", metadata({"a": ["|u1", [len(body)]]}), {"a.npy": body})
    files = sorted(tmp_path.glob("*.npz"))
    assert len(files) == 7
    for file in files:
        with pytest.raises(CheckpointError):
            load(file)
    assert not sprung.exists()


@pytest.mark.parametrize(
    "said",
    [
        ["<f4", [1 << 40]],
        ["<f4", [1 << 62, 1 << 62]],
        ["<f4", [0, 1 << 70]],
        ["<f4", [1] * 65],
        ["<f4", [-1, -2]],
        ["<f4", [True, 2]],
        ["<f4", [2.0]],
        ["<f4", "2"],
        ["<f4", None],
        ["<f4"],
        ["<f4", [2], 1],
        ["<f8", [2]],
        ["<f4", [1]],
        ["bfloat16", [2]],
        ["float", [2]],
        [4, [2]],
        {},
        7,
        None,
    ],
    ids=str,
)
def test_dtypes_and_shapes_that_do_not_fit(tmp_path: Path, said: Any) -> None:
    prefix = forge(tmp_path / "m-1.npz", metadata({"a/b": said}), {"a/b.npy": npy("<f4", (2,), b"12345678")})
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="variable 'a/b'"):
            load(prefix)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_compressed_part_is_not_unpacked(tmp_path: Path) -> None:
    bomb = npy("|u1", (1 << 26,), bytes(1 << 26))
    prefix = forge(tmp_path / "m-1.npz", metadata({"a": ["|u1", [1 << 26]]}), {"a.npy": bomb}, zipfile.ZIP_DEFLATED)
    assert Path(f"{prefix}.npz").stat().st_size < 1 << 20
    with pytest.raises(CheckpointError, match=r"part 'a\.npy' is compressed"):
        load(prefix)


def test_many_parts_of_the_same_bytes(tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(100)]
    part = npy("|u1", (1 << 16,), bytes(1 << 16))

    def repeat(archive: zipfile.ZipFile) -> None:
        for name in names[1:]:
            again = copy.copy(archive.getinfo("a0.npy"))
            again.filename = f"{name}.npy"
            archive.filelist.append(again)

    said = metadata({name: ["|u1", [1 << 16]] for name in names})
    prefix = forge(tmp_path / "m-1.npz", said, {"a0.npy": part}, more=repeat)
    with pytest.raises(CheckpointError, match="its parts are longer together than the file"):
        load(prefix)


def test_a_part_that_claims_more_than_the_file_has(tmp_path: Path) -> None:
    def lie(archive: zipfile.ZipFile) -> None:
        info = archive.getinfo("a.npy")
        info.file_size = info.compress_size = 1 << 45

    prefix = forge(
        tmp_path / "m-1.npz", metadata({"a": ["|u1", [1 << 45]]}), {"a.npy": npy("|u1", (1,), b"1")}, more=lie
    )
    with pytest.raises(CheckpointError, match="its parts are longer together than the file"):
        load(prefix)


ONE = npy("|u1", (1,), b"1")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.npy", "../../up.npy"], r"has a part '\.\./\.\./up\.npy' that it does not list"),
        (["a.npy", "/etc/passwd"], "has a part '/etc/passwd'"),
        (["a.npy", "a"], "has a part 'a'"),
        (["A.npy"], "variable 'a' is missing"),
        (["a"], "variable 'a' is missing"),
        ([], "variable 'a' is missing"),
        (["a.npy", "%61.npy"], "has a part '%61.npy'"),
    ],
)
def test_wrong_names_of_parts(tmp_path: Path, names: list[str], message: str) -> None:
    prefix = forge(tmp_path / "m-1.npz", metadata({"a": ["|u1", [1]]}), dict.fromkeys(names, ONE))
    with pytest.raises(CheckpointError, match=message):
        load(prefix)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["a.npy", "metadata.json"])
def test_two_parts_of_the_same_name(tmp_path: Path, name: str) -> None:
    def again(archive: zipfile.ZipFile) -> None:
        archive.writestr(name, ONE)

    prefix = forge(tmp_path / "m-1.npz", metadata({"a": ["|u1", [1]]}), {"a.npy": ONE}, more=again)
    with pytest.raises(CheckpointError, match="several of its parts have the same name"):
        load(prefix)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (None, "has no part 'metadata.json'"),
        (b"", "cannot be read"),
        (b"\xff\xfe\xff", "cannot be read"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 100_000, "cannot be read"),
        ([], "no JSON object"),
        ({}, "does not describe a checkpoint"),
        (metadata({}, format="another"), "does not describe a checkpoint"),
        (metadata({}, version=2), "version is 2, which is not known here"),
        (metadata({}, step=-1), "-1 is not a count"),
        (metadata({}, step="1"), "'1' is not a count"),
        (metadata({}, time=None), "None is not a time"),
        (metadata([]), "its arrays are not an object"),
        (metadata({}, extra=None), "its extra are not an object"),
    ],
)
def test_metadata_that_is_none(tmp_path: Path, said: Any, message: str) -> None:
    prefix = forge(tmp_path / "m-1.npz", said, {})
    with pytest.raises(CheckpointError, match=message):
        load(prefix)


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "directory-1.npz").mkdir()
    os.mkfifo(tmp_path / "pipe-1.npz")
    (tmp_path / "empty-1.npz").touch()
    (tmp_path / "text-1.npz").write_text(json.dumps(metadata({})))
    for name in ("directory-1", "pipe-1", "empty-1", "text-1"):
        with pytest.raises(CheckpointError, match=f"{name}.npz is not a usable checkpoint"):
            load(tmp_path / name)
    assert all_checkpoints(tmp_path) == []
    assert latest_checkpoint(tmp_path) is None


def test_a_file_of_numpy_is_no_checkpoint(tmp_path: Path) -> None:
    np.savez(tmp_path / "data-3.npz", a=np.ones(2))
    assert all_checkpoints(tmp_path) == []
    with pytest.raises(CheckpointError, match=r"no part 'metadata.json', so that it is something else"):
        load(tmp_path / "data-3")
