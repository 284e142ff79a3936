"""Single variables of a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from lockstep.checkpoint import CheckpointStore, load_checkpoint, load_variable, remove_checkpoint
from lockstep.errors import ArgumentError

SAVED = {
    "dense/kernel": np.ones((2, 3), np.float32),
    "dense/bias": np.zeros(3),
    "odd:0": np.int32(5),
    "odd": np.int32(6),
}


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    with CheckpointStore(tmp_path) as store:
        return store.save(1, SAVED)


def test_maps(prefix: str) -> None:
    reader = load_checkpoint(prefix)
    shapes = {"dense/kernel": [2, 3], "dense/bias": [3], "odd:0": [], "odd": []}
    assert reader.get_variable_to_shape_map() == shapes
    assert reader.get_variable_to_dtype_map() == {name: value.dtype for name, value in SAVED.items()}


@pytest.mark.parametrize(
    ("name", "value"), [("dense/kernel", 1), ("dense/kernel:0", 1), ("dense/bias:0", 0), ("odd:0", 5), ("odd", 6)]
)
def test_names_may_be_those_of_tensors(prefix: str, name: str, value: int) -> None:
    reader = load_checkpoint(os.path.dirname(prefix))
    assert reader.has_tensor(name)
    assert (reader.get_tensor(name) == value).all()
    assert (load_variable(prefix, name) == value).all()


def test_unknown_names(prefix: str) -> None:
    reader = load_checkpoint(prefix)
    assert not reader.has_tensor("dense/kernel:1")
    with pytest.raises(ArgumentError, match=r"no variable 'dense/kernle:0'; it has 4. Did you mean 'dense/kernel'"):
        reader.get_tensor("dense/kernle:0")
    with pytest.raises(ArgumentError, match="list_variables lists them"):
        load_variable(prefix, "x" * 50)
    with pytest.raises(ArgumentError, match="named by a str"):
        reader.get_tensor(b"odd")  # type: ignore[arg-type]


def test_an_open_reader_outlives_the_file(prefix: str) -> None:
    reader = load_checkpoint(prefix)
    remove_checkpoint(prefix)
    assert reader.get_tensor("odd") == 6


def test_only_the_variable_is_read(prefix: str) -> None:
    file = Path(f"{prefix}.npz")
    data = bytearray(file.read_bytes())
    data[data.index(SAVED["dense/kernel"].tobytes())] ^= 1
    file.write_bytes(data)
    assert load_variable(prefix, "dense/bias").tolist() == [0, 0, 0]


def test_readers_let_go_of_their_files(prefix: str) -> None:
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        load_checkpoint(prefix)
    assert len(os.listdir("/dev/fd")) <= before + 1
