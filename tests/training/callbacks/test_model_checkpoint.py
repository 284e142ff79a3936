"""Files of models that are whole at any time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.checkpoint import _owners
from lockstep.errors import ArgumentError, CheckpointError
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from lockstep.training.callbacks._model_checkpoint import ModelCheckpoint
from tests.engine.keras import resuming


@pytest.fixture(scope="module")
def strategy() -> Any:
    return ls.distribute.OneDeviceStrategy("/cpu:0")


def fit(strategy: Any, *callbacks: Any, epochs: int = 2) -> Any:
    model, (x, y) = resuming.model_of(strategy), resuming.data(20)
    model.fit(x, y, 10, epochs, 0, list(callbacks), validation_data=(x, y))
    return model


@pytest.mark.slow
def test_saves_what_keras_saves(strategy: Any, tmp_path: Path) -> None:
    model = fit(
        strategy,
        ModelCheckpoint(tmp_path / "{epoch:02d}-{accuracy:.1f}.keras"),
        ModelCheckpoint(tmp_path / "b{epoch}-{batch}.weights.h5", save_weights_only=True, save_freq=3),
        ModelCheckpoint(tmp_path / "deep" / "er" / "m.h5.keras", save_freq=2),
    )
    names = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert "b2-1.weights.h5" in names and "deep/er/m.h5.keras" in names
    assert len(names) == 4 and sum(name.startswith(("01-0.", "02-0.")) for name in names) == 2
    loaded = keras.models.load_model(tmp_path / "deep" / "er" / "m.h5.keras")
    for mine, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert int(loaded.optimizer.iterations) == 4


@pytest.mark.slow
def test_only_the_best(strategy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = ModelCheckpoint(tmp_path / "m.keras", "val_loss", 1, save_best_only=True, initial_value_threshold=0.0)
    fit(strategy, best)
    assert list(tmp_path.iterdir()) == []
    assert "val_loss did not improve from 0.00000" in capsys.readouterr().out
    better = ModelCheckpoint(tmp_path / "m.keras", "val_loss", 1, save_best_only=True)
    fit(strategy, better)
    assert "improved from None to" in capsys.readouterr().out
    assert better.best is not None


@pytest.mark.slow
def test_the_best_is_remembered(strategy: Any, tmp_path: Path) -> None:
    def callbacks() -> list[Any]:
        best = ModelCheckpoint(tmp_path / "m.keras", "val_loss", save_best_only=True, mode="max")
        return [BackupAndRestore(tmp_path / "b"), best]

    with pytest.raises(resuming.Interrupted):
        fit(strategy, *callbacks(), resuming.Interrupts(3))
    written = (tmp_path / "m.keras").stat().st_mtime_ns
    again = callbacks()
    # The loss falls; "max" keeps the first epoch's.
    fit(strategy, *again)
    assert (tmp_path / "m.keras").stat().st_mtime_ns == written
    assert again[1].best is not None


def test_a_write_that_fails_leaves_the_file_and_the_best(
    strategy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.weights.h5"
    file.write_bytes(b"before")

    def half(self: Any, path: str, overwrite: bool) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keras.Model, "save_weights", half)
    saver = ModelCheckpoint(file, "loss", save_best_only=True, save_weights_only=True)
    with pytest.raises(CheckpointError, match=r"m\.weights\.h5 could not be written: .*No space left on device"):
        fit(strategy, saver)
    assert file.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["m.weights.h5"]
    assert saver.best is None


def test_what_a_killed_writer_left_is_removed(strategy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 4194303)  # Nobody's.
    left = tmp_path / f"{_owners.tag_name('.m.keras')}.tmp.keras"
    monkeypatch.undo()
    left.write_bytes(b"half")
    fit(strategy, ModelCheckpoint(tmp_path / "m.keras"))
    assert os.listdir(tmp_path) == ["m.keras"]


def test_a_directory_in_its_place(strategy: Any, tmp_path: Path) -> None:
    (tmp_path / "m.keras").mkdir()
    with pytest.raises(CheckpointError, match="it is a directory"):
        fit(strategy, ModelCheckpoint(tmp_path / "m.keras"))


def test_a_name_that_is_not_logged(strategy: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"Names in braces in filepath are epoch, accuracy, loss.*\{nope\}"):
        fit(strategy, ModelCheckpoint(tmp_path / "{nope}.keras"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filepath": "m.ckpt"}, "ends with .keras"),
        ({"filepath": "m.h5", "save_weights_only": True}, "ends with .weights.h5"),
        ({"filepath": "m.keras", "save_freq": 0}, "at least 1"),
        ({"filepath": "m.keras", "save_freq": True}, "at least 1"),
        ({"filepath": "m.keras", "save_freq": "batch"}, "'epoch' or a number"),
    ],
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ModelCheckpoint(**arguments)
