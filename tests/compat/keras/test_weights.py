"""Weights under prefixes, and the file that names the newest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep.compat.tensorflow.keras as tf_keras
from lockstep.compat.tensorflow.keras import _saves
from lockstep.errors import CheckpointError, DataNotFoundError, InputError
from tests.compat.keras import small


def equal(one: tf_keras.Model, other: tf_keras.Model) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.get_weights(), other.get_weights(), strict=True))


def test_a_prefix(tmp_path: Path) -> None:
    model, other = small.trained(), small.trained()
    model.save_weights(tmp_path / "cp.ckpt")
    assert (tmp_path / "cp.ckpt.index").exists()
    other.load_weights(str(tmp_path / "cp.ckpt")).expect_partial().assert_consumed()
    assert equal(model, other)
    assert equal_state(model, other)


def equal_state(one: tf_keras.Model, other: tf_keras.Model) -> bool:
    pairs = zip(one.optimizer.get_weights(), other.optimizer.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_the_newest(tmp_path: Path) -> None:
    assert tf_keras.latest_checkpoint(tmp_path) is None
    model = small.trained()
    for name in ("cp-1.ckpt", "cp-10.ckpt", "cp-2.ckpt"):
        model.save_weights(str(tmp_path / name), overwrite=True, save_format="tf")
        assert tf_keras.latest_checkpoint(str(tmp_path)) == str(tmp_path / name)
    model.save_weights(str(tmp_path / "cp-1.ckpt"))
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    assert lines == [
        'model_checkpoint_path: "cp-1.ckpt"',
        *(f'all_model_checkpoint_paths: "{name}.ckpt"' for name in ("cp-10", "cp-2", "cp-1")),
    ]
    fresh = small.model()
    fresh.load_weights(tf_keras.latest_checkpoint(tmp_path))
    assert equal(model, fresh)
    (tmp_path / "cp-1.ckpt.weights.h5").unlink()
    assert tf_keras.latest_checkpoint(tmp_path) is None


@pytest.mark.slow
def test_what_another_optimizer_saved(tmp_path: Path) -> None:
    model = small.trained(optimizer="adam")
    model.save_weights(tmp_path / "cp.ckpt")
    other = small.model(optimizer=tf_keras.optimizers.SGD(0.5, momentum=0.9))
    with pytest.warns(UserWarning, match="the optimizer starts anew"):
        other.load_weights(tmp_path / "cp.ckpt")
    assert equal(model, other)
    assert float(other.optimizer.lr) == 0.5
    other.fit(*small.data(), verbose=0)


def test_weights_of_a_model_that_was_not_compiled(tmp_path: Path) -> None:
    model = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(5), tf_keras.layers.Dense(3)])
    model.save_weights(tmp_path / "cp.ckpt")
    for other in (small.model(), small.trained()):
        other.load_weights(tmp_path / "cp.ckpt")
        assert equal(model, other)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", b'model_checkpoint_path: "a"\n' * 2])
def test_a_damaged_state_file_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(InputError, match="checkpoint"):
        tf_keras.latest_checkpoint(tmp_path)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), min_size=1))
def test_names_survive_the_state_file(name: str) -> None:
    assert _saves._unescape(_saves._escape(name)) == name


@pytest.mark.parametrize("name", ["w.h5", "w.hdf5", "w.weights.h5"])
def test_files(name: str, tmp_path: Path) -> None:
    model, other = small.trained(), small.model()
    model.save_weights(tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    other.load_weights(tmp_path / name)
    assert equal(model, other)


def test_by_name(tmp_path: Path) -> None:
    def make(*layers: tf_keras.layers.Layer) -> tf_keras.Model:
        return tf_keras.Sequential([tf_keras.Input((4,)), *layers])

    dense = tf_keras.layers.Dense
    source = make(dense(3, name="first"), dense(2, name="second"))
    source.save_weights(tmp_path / "w.h5")
    target = make(dense(3, name="other"), dense(2, name="second"))
    target.load_weights(tmp_path / "w.h5", by_name=True)
    assert np.array_equal(source.layers[1].kernel, target.layers[1].kernel)
    assert not np.array_equal(source.layers[0].kernel, target.layers[0].kernel)


def test_the_weights_of_a_saved_model(tmp_path: Path) -> None:
    model, other = small.trained(), small.model()
    model.save(tmp_path / "saved")
    other.load_weights(tmp_path / "saved")
    assert equal(model, other)


def test_a_damaged_checkpoint_of_tensorflow_is_named(tmp_path: Path) -> None:
    (tmp_path / "cp.ckpt.index").write_bytes(b"\0table")
    with pytest.raises(CheckpointError, match=r"cp\.ckpt\.index is not a usable checkpoint of TensorFlow"):
        small.model().load_weights(tmp_path / "cp.ckpt")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="No weights were saved"):
        small.model().load_weights(tmp_path / "cp.ckpt")
