"""Directories with checkpoints of TensorFlow that cannot be read: nothing begins anew beside them."""

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
    """Returns every file but the report of a run, which a training leaves there however it ends."""
    files = (p for p in directory.rglob("*") if p.is_file() and p.name != "report.html" and p.suffix != ".jsonl")
    return {str(p.relative_to(directory)): p.read_bytes() for p in files}


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
    "latest_checkpoint": checkpoint.latest_checkpoint,
    "manager": lambda d: _manager(d).restore_or_initialize(),
}
# What needs more than TensorFlow saves: where the data stand.
REFUSED: dict[str, Callable[[Path], Any]] = {
    "backups": lambda d: _fit(ls.callbacks.BackupAndRestore(d)),
    "program": lambda d: ls.training.Program(lambda state, batch: (state, {})).restore({"x": np.zeros(1)}, d),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_nothing_begins_anew_beside_a_checkpoint_that_cannot_be_read(
    directory: Path, use: Callable[[Path], Any]
) -> None:
    before = content(directory)
    with pytest.raises(CheckpointError, match=r"model\.ckpt-123\.(index|data-0)") as error:
        use(directory)
    assert str(directory) in str(error.value)
    assert content(directory) == before


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED)
def test_what_needs_a_position_in_the_data_refuses_them(directory: Path, use: Callable[[Path], Any]) -> None:
    before = content(directory)
    with pytest.raises(CheckpointError, match=r"model\.ckpt-123\.(index|data-0).* belongs to a checkpoint") as error:
        use(directory)
    assert "Give another directory" in str(error.value)
    assert content(directory) == before


@pytest.mark.parametrize("read", [checkpoint.load, checkpoint.load_checkpoint], ids=["load", "reader"])
def test_a_checkpoint_of_tensorflow_is_named_when_it_is_read(tmp_path: Path, read: Callable[[Any], Any]) -> None:
    (tmp_path / "model.ckpt-123.index").write_bytes(bytes(40) + _MAGIC)
    with pytest.raises(CheckpointError, match=r"model\.ckpt-123\.index is not a usable checkpoint of TensorFlow"):
        read(tmp_path / "model.ckpt-123")


def test_an_index_of_weights_is_none_of_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = _model()
    model.save_weights("cp.ckpt")
    model.save_weights("cp.ckpt")
    assert (tmp_path / "cp.ckpt.index").exists()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "cp.ckpt")
    checkpoint.CheckpointStore(tmp_path).close()
