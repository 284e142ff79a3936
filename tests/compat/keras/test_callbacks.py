"""Checkpoints while training, with the paths of Keras 2."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import lockstep
import lockstep.compat.tensorflow.keras as tf_keras
from lockstep._engine.keras.callbacks import _WRITERS
from lockstep.errors import ArgumentError, UnsupportedError
from tests.compat.keras import plain, small


def fit(epochs: int, *callbacks: keras.callbacks.Callback, model: keras.Model | None = None) -> keras.Model:
    model = model or small.model()
    x, y = small.data()
    model.fit(x, y, batch_size=8, epochs=epochs, validation_data=(x, y), callbacks=list(callbacks), verbose=0)
    return model


@pytest.mark.parametrize("name", ["ModelCheckpoint", "TensorBoard"])
def test_only_the_chief_writes(name: str) -> None:
    assert issubclass(getattr(tf_keras.callbacks, name), _WRITERS)
    assert issubclass(getattr(tf_keras.callbacks, name), getattr(keras.callbacks, name))


@pytest.mark.slow
def test_a_directory_for_each_epoch(tmp_path: Path) -> None:
    model = fit(2, tf_keras.callbacks.ModelCheckpoint(filepath=f"{tmp_path}/ckpt-{{epoch}}", options=None))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ckpt-1", "ckpt-2"]
    again = keras.models.load_model(tmp_path / "ckpt-2")
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), again.get_weights(), strict=True))


def test_hdf5_with_metrics_in_its_name(tmp_path: Path) -> None:
    fit(1, tf_keras.callbacks.ModelCheckpoint(str(tmp_path / "weights.{epoch:02d}-{val_loss:.2f}.hdf5"), period=1))
    (entry,) = tmp_path.iterdir()
    assert entry.name.startswith("weights.01-")
    assert tf_keras.models.load_model(entry).count_params() == 43


@pytest.mark.slow
def test_weights_under_a_prefix_are_restored(tmp_path: Path) -> None:
    model = fit(3, tf_keras.callbacks.ModelCheckpoint(tmp_path / "cp.ckpt", save_weights_only=True))
    fresh = small.model()
    fresh.load_weights(tf_keras.latest_checkpoint(tmp_path))
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), fresh.get_weights(), strict=True))


@pytest.mark.slow
def test_period_and_save_freq(tmp_path: Path) -> None:
    every_other = tf_keras.callbacks.ModelCheckpoint(f"{tmp_path}/epochs/{{epoch}}.keras", period=2)
    every_third = tf_keras.callbacks.ModelCheckpoint(f"{tmp_path}/batches/{{epoch}}-{{batch}}", save_freq=3)
    fit(5, every_other, every_third)
    assert sorted(entry.name for entry in (tmp_path / "epochs").iterdir()) == ["2.keras", "4.keras"]
    found = sorted(entry.name for entry in (tmp_path / "batches").iterdir())
    assert found == ["1-3", "2-2", "3-1", "3-4", "4-3", "5-2"]


@pytest.mark.slow
def test_the_best_only(tmp_path: Path) -> None:
    best = tf_keras.callbacks.ModelCheckpoint(tmp_path / "best", "val_acc", save_best_only=True, mode="max")
    fit(2, best)
    assert (tmp_path / "best" / "config.json").exists()
    assert best.best is not None


@pytest.mark.slow
def test_under_a_strategy(tmp_path: Path) -> None:
    with lockstep.distribute.MirroredStrategy().scope():
        model = small.model()
    fit(2, tf_keras.callbacks.ModelCheckpoint(f"{tmp_path}/ckpt-{{epoch}}"), model=model)
    again = keras.models.load_model(tmp_path / "ckpt-2")
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), again.get_weights(), strict=True))
    assert int(again.optimizer.iterations) == 8


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"period": 0}, ArgumentError),
        ({"period": True}, ArgumentError),
        ({"options": object()}, ArgumentError),
        ({"load_weights_on_restart": True}, UnsupportedError),
    ],
)
def test_what_cannot_be_honoured(arguments: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        tf_keras.callbacks.ModelCheckpoint("any", **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["of TensorFlow's names", "of a strategy", "of plain Keras"])
def test_backup(kind: str, tmp_path: Path) -> None:
    assert tf_keras.callbacks.experimental.BackupAndRestore is tf_keras.callbacks.BackupAndRestore
    backup = tf_keras.callbacks.BackupAndRestore(tmp_path, "epoch", False)
    fit(2, backup, model=made(kind))
    continued = fit(3, tf_keras.callbacks.BackupAndRestore(tmp_path), model=made(kind))
    # The exact one knows the history, too.
    assert continued.history.epoch == ([2] if kind == "of plain Keras" else [0, 1, 2])
    assert int(continued.optimizer.iterations) == 12


def made(kind: str) -> keras.Model:
    if kind == "of TensorFlow's names":
        return small.model()
    if kind == "of plain Keras":
        return plain.classifier()
    with lockstep.distribute.MirroredStrategy().scope():
        return small.model()


@pytest.mark.slow
def test_a_backup_before_preemption_needs_our_loop(tmp_path: Path) -> None:
    backup = tf_keras.callbacks.BackupAndRestore(tmp_path, save_before_preemption=True)
    with pytest.raises(UnsupportedError, match="save_before_preemption"):
        fit(1, backup, model=made("of plain Keras"))
    fit(1, backup)
    fit(1, backup, model=made("of a strategy"))
