"""Directories with checkpoints of TensorFlow: refused by name, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
import lockstep.compat.tensorflow as tf
from lockstep import checkpoint
from lockstep.errors import CheckpointError
from tests.estimator.small import input_fn, line

# What ends each table, and so each index.
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")


def content(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture(params=["whole", "index alone", "data alone"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param != "data alone":
        (tmp_path / "model.ckpt-123.index").write_bytes(bytes(40) + _MAGIC)
    if request.param != "index alone":
        (tmp_path / "model.ckpt-123.data-00000-of-00001").write_bytes(bytes(100))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-123"\n')
    return tmp_path


def _model() -> Any:
    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
    return model


def _fit(callback: Any) -> None:
    _model().fit(np.zeros((4, 2)), np.zeros((4, 1)), verbose=0, callbacks=[callback])


def _manager(directory: Path) -> Any:
    return tf.train.CheckpointManager(tf.train.Checkpoint(v=tf.Variable(1.0)), str(directory), 3)


def _receiver() -> Any:
    return ls.estimator.export.ServingInputReceiver({}, {})


USES: dict[str, Callable[[Path], Any]] = {
    "train": lambda d: line(d).train(input_fn(), steps=1),
    "train to a step": lambda d: line(d).train(input_fn(), max_steps=1),
    "train_and_evaluate": lambda d: ls.estimator.train_and_evaluate(
        line(d), ls.estimator.TrainSpec(input_fn(), max_steps=1), ls.estimator.EvalSpec(input_fn(), steps=1)
    ),
    "evaluate": lambda d: line(d).evaluate(input_fn(), steps=1),
    "predict": lambda d: list(line(d).predict(input_fn())),
    "export": lambda d: line(d).export_saved_model(str(d / "export"), _receiver),
    "latest": lambda d: line(d).latest_checkpoint(),
    "backups": lambda d: _fit(ls.callbacks.BackupAndRestore(d)),
    "store": checkpoint.CheckpointStore,
    "latest_checkpoint": checkpoint.latest_checkpoint,
    "all_checkpoints": checkpoint.all_checkpoints,
    "state": lambda d: checkpoint.update_checkpoint_state(d, "new-1"),
    "manager": _manager,
    "tf.train.latest_checkpoint": lambda d: tf.train.latest_checkpoint(str(d)),
    "tf.train.Checkpoint": lambda d: tf.train.Checkpoint(v=tf.Variable(1.0)).save(str(d / "mine")),
    "save_weights": lambda d: _model().save_weights(str(d / "cp.ckpt")),
    "ModelCheckpoint": lambda d: _fit(tf.keras.callbacks.ModelCheckpoint(str(d / "cp.ckpt"), save_weights_only=True)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_directory_of_tensorflow_is_refused(directory: Path, use: Callable[[Path], Any]) -> None:
    before = content(directory)
    with pytest.raises(CheckpointError, match=r"model\.ckpt-123\.(index|data-0).* belongs to a checkpoint") as error:
        use(directory)
    assert str(directory) in str(error.value)
    assert "Give another directory" in str(error.value)
    assert content(directory) == before


@pytest.mark.parametrize("read", [checkpoint.load, checkpoint.load_checkpoint], ids=["load", "reader"])
def test_a_checkpoint_of_tensorflow_is_named_when_it_is_read(tmp_path: Path, read: Callable[[Any], Any]) -> None:
    (tmp_path / "model.ckpt-123.index").write_bytes(bytes(40) + _MAGIC)
    with pytest.raises(CheckpointError, match=r"model\.ckpt-123\.index belongs to a checkpoint of TensorFlow"):
        read(tmp_path / "model.ckpt-123")


def test_an_index_of_weights_is_none_of_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = _model()
    model.save_weights("cp.ckpt")
    model.save_weights("cp.ckpt")
    assert (tmp_path / "cp.ckpt.index").exists()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "cp.ckpt")
    checkpoint.CheckpointStore(tmp_path).close()
