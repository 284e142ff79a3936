"""Models saved to directories, and in the formats of Keras 2."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
import lockstep.compat.tensorflow.keras as tf_keras
from lockstep.checkpoint import _atomic as exchange
from lockstep.compat.tensorflow.keras import _own_models, _saves
from lockstep.errors import ArgumentError, CheckpointError, LockstepError, UnsupportedError
from tests.compat.keras import small


def says_the_same(one: keras.Model, other: keras.Model) -> bool:
    x = small.data()[0]
    return np.array_equal(one(x), other(x))


@pytest.mark.parametrize("load", [keras.models.load_model, tf_keras.models.load_model])
@pytest.mark.parametrize("arguments", [{}, {"save_format": "tf"}, {"save_traces": False, "options": None}])
def test_a_directory(load, arguments: dict[str, object], tmp_path: Path) -> None:
    model = small.trained()
    model.save(tmp_path / "deep" / "saved", **arguments)
    again = load(tmp_path / "deep" / "saved")
    assert says_the_same(model, again)
    assert int(again.optimizer.iterations) == int(model.optimizer.iterations) == 4
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["saved"]


@pytest.mark.slow
def test_a_directory_is_read_by_keras_alone(tmp_path: Path) -> None:
    small.trained().save(str(tmp_path / "saved"))
    code = "import sys, keras; print(keras.models.load_model(sys.argv[1]).count_params(), 'lockstep' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "saved")],
        env={"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["43", "False"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_directory_is_replaced(can_exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_exchange:
        monkeypatch.setattr(exchange, "_exchange", lambda new, target: False)
    small.trained().save(tmp_path / "saved")
    second = small.trained()
    second.save(tmp_path / "saved")
    assert says_the_same(second, keras.models.load_model(tmp_path / "saved"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_several_tasks_save_to_one_place(tmp_path: Path) -> None:
    models = [small.trained() for _ in range(2)]
    for _ in range(5):
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda model: model.save(tmp_path / "saved"), models))
        again = keras.models.load_model(tmp_path / "saved")
        assert any(says_the_same(model, again) for model in models)
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_other_files_in_the_directory_stay(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    for _ in range(2):
        model = small.trained()
        model.save(tmp_path / "saved")
        assert says_the_same(model, keras.models.load_model(tmp_path / "saved"))
    assert (tmp_path / "saved" / "notes.txt").read_text() == "mine"


def test_a_save_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small.trained()
    first.save(tmp_path / "saved")

    def break_off(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(_saves.saving_lib, "save_model", break_off)
    with pytest.raises(CheckpointError, match="could not be written: disk full"):
        small.trained().save(tmp_path / "saved")
    assert says_the_same(first, keras.models.load_model(tmp_path / "saved"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_a_process_that_ended_between_two_renames_lost_nothing(tmp_path: Path) -> None:
    model = small.trained()
    model.save(tmp_path / "saved")
    (tmp_path / "saved").rename(_saves._aside(tmp_path / "saved"))
    assert says_the_same(model, tf_keras.models.load_model(tmp_path / "saved"))


@pytest.mark.slow
def test_without_the_optimizer(tmp_path: Path) -> None:
    model = small.trained()
    model.save(tmp_path / "saved", include_optimizer=False)
    again = tf_keras.models.load_model(tmp_path / "saved")
    assert says_the_same(model, again)
    assert not again.compiled
    model.fit(*small.data(), verbose=0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("m.h5", {}),
        ("m.hdf5", {}),
        ("m.keras", {}),
        ("m", {"save_format": "h5"}),
        ("m.keras", {"save_format": "keras"}),
    ],
)
def test_files(name: str, arguments: dict[str, str], tmp_path: Path) -> None:
    model = small.trained()
    tf_keras.models.save_model(model, str(tmp_path / name), **arguments)
    assert (tmp_path / name).is_file()
    assert says_the_same(model, tf_keras.models.load_model(tmp_path / name))


@pytest.mark.parametrize("name", ["m.keras", "m.h5", "m.weights.h5"])
def test_a_file_that_is_not_finished_leaves_the_old_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small.trained()
    save = model.save_weights if "weights" in name else model.save
    save(tmp_path / name)
    before = (tmp_path / name).read_bytes()

    def break_off(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    for there in (
        "keras.src.saving.saving_lib.H5IOStore.close",
        "keras.src.legacy.saving.legacy_h5_format.save_attributes_to_hdf5_group",
    ):
        monkeypatch.setattr(there, break_off)
    with pytest.raises(CheckpointError, match="could not be written: disk full"):
        save(str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_not_overwriting_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small.trained()
    first.save(tmp_path / "saved")
    monkeypatch.setattr("builtins.input", lambda *args: "n")
    small.trained().save(tmp_path / "saved", overwrite=False)
    assert says_the_same(first, keras.models.load_model(tmp_path / "saved"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"save_format": "zip"}, "received 'zip'"),
        ({"options": object()}, "options is a"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_cannot_be_honoured(arguments: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match=says):
        small.model().save(tmp_path / "saved", **arguments)
    assert not (tmp_path / "saved").exists()


def test_a_saved_model_of_tensorflow_is_refused(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    with pytest.raises(UnsupportedError, match="SavedModel of TensorFlow"):
        tf_keras.models.load_model(tmp_path)
    with pytest.raises(ArgumentError, match="options"):
        tf_keras.models.load_model(tmp_path, options=object())


SCALE = 3.0


@pytest.mark.parametrize("name", ["directory", "model.keras"])
def test_lambdas_that_this_process_has_saved(name: str, tmp_path: Path) -> None:
    layers = [tf_keras.layers.Lambda(lambda x: x * SCALE, input_shape=(4,)), tf_keras.layers.Dense(1)]
    model = tf_keras.Sequential(layers)
    model.save(tmp_path / name)
    loaded = tf_keras.models.load_model(tmp_path / name)
    x = small.data()[0]
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


def test_lambdas_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tf_keras.Sequential([tf_keras.layers.Lambda(lambda x: x - SCALE, input_shape=(4,))]).save(tmp_path / "model")
    # As in another process.
    monkeypatch.setattr(_own_models, "_functions", {})
    with pytest.raises(ValueError, match="arbitrary code"):
        tf_keras.models.load_model(tmp_path / "model")


def test_options_of_tensorflow_and_specs_of_inputs(tmp_path: Path) -> None:
    model = small.trained()
    model.save(tmp_path / "m", options=tf.saved_model.SaveOptions(experimental_io_device="/job:localhost"))
    options = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")
    assert says_the_same(tf_keras.models.load_model(tmp_path / "m", options=options), model)
    assert model.save_spec() == ((tf.TensorSpec([None, 4], tf.float32),), {})
