"""`lockstep import-checkpoint`: TensorFlow's checkpoints in lockstep's and in Keras' forms."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep import checkpoint
from lockstep._launch.cli import main
from lockstep._migrate._models import load_model
from tests.support.arrays import load_arrays

DATA = Path(__file__).parents[1] / "checkpoint" / "data"
MAKE = """
import keras


def make():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
"""


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["import-checkpoint", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(DATA / "tracked") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "model/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE float32 [3, 4]" in lines
    assert "_CHECKPOINTABLE_OBJECT_GRAPH text []" in lines


def test_a_file_of_lockstep_holds_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(DATA / "keras_adam" / "cp.ckpt.index", tmp_path / "cp.npz") == 0
    assert "Text is left out: _CHECKPOINTABLE_OBJECT_GRAPH." in capsys.readouterr().out
    expected = load_arrays(DATA / "keras_adam" / "expected.npz")
    found = checkpoint.load(tmp_path / "cp")
    for key, name in (checkpoint.load(DATA / "keras_adam" / "cp.ckpt").full_names or {}).items():
        assert found.arrays[name].tobytes() == expected[key.replace("/", "|")].tobytes()


@pytest.mark.slow
def test_an_estimator_goes_on_from_a_converted_directory(tmp_path: Path) -> None:
    assert run(DATA / "estimator_dnn", tmp_path / "model") == 0
    columns = [tf.feature_column.numeric_column("x", shape=(3,))]
    estimator = tf.estimator.DNNClassifier([4, 3], columns, model_dir=str(tmp_path / "model"))
    rows = tf.data.Dataset.from_tensor_slices(({"x": np.ones((4, 3), np.float32)}, np.ones((4, 1), np.int64))).batch(4)
    estimator.train(lambda: rows, steps=1)
    assert estimator.get_variable_value("global_step") == 6
    # A directory that holds something is not written to.
    assert run(DATA / "estimator_dnn", tmp_path / "model") == 2


@pytest.mark.parametrize("name", ["model.weights.h5", "model.keras"])
def test_files_of_keras(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "mine.py"
    program.write_text(MAKE)
    # What is left out is said in a line, and not in a warning of Python's with a place in the source.
    assert run(DATA / "keras_sgd" / "cp.ckpt", tmp_path / name, "--model", f"{program}:make") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0].partition(" sequential")[0] for line in lines[1:]] == ["Left out, for which"]
    assert "optimizer" in lines[1]
    if name == "model.keras":
        model = keras.models.load_model(tmp_path / name)
    else:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.load_weights(tmp_path / name)
    with np.load(DATA / "keras_sgd" / "expected.npz") as expected:
        stored = expected["layer_with_weights-1|kernel|.ATTRIBUTES|VARIABLE_VALUE"]
    np.testing.assert_array_equal(np.asarray(model.layers[-1].kernel), stored)


def test_an_optimizer_that_begins_anew_is_told_in_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    # Before a step Keras saves two of an optimizer's variables, and expects all when it loads them.
    model.save(tmp_path / "untrained.keras")
    load_model(str(tmp_path / "untrained.keras"))
    assert ["begins anew" in message for message in caplog.messages] == [True]


def test_the_variables_of_a_saved_model(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(MAKE)
    assert run(DATA / "saved_model", tmp_path / "model.keras", "--model", f"{program}:make") == 0
    with np.load(DATA / "saved_model" / "expected.npz") as expected:
        stored = [value for value in expected.values() if value.shape == (4, 1)]
    model = keras.models.load_model(tmp_path / "model.keras")
    assert any(np.array_equal(np.asarray(model.layers[-1].kernel), value) for value in stored)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["keras_sgd/cp.ckpt", "out.keras"], "--model names"),
        (["keras_sgd/cp.ckpt", "out.txt"], "A checkpoint becomes a file of lockstep"),
        (["keras_sgd/cp.ckpt", "out.keras", "--model", "nowhere.py:make"], "There is no program nowhere.py"),
        (["keras_sgd/cp.ckpt", "out.keras", "--model", "json:nope"], "has no function 'nope'"),
        (["keras_sgd/nope", "out.npz"], "There is no checkpoint"),
        ([".", "out.npz"], "which has none"),
    ],
)
def test_what_cannot_be_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    source, output, *options = arguments
    assert run(DATA / source, tmp_path / output, *options) == 2
    assert message in capsys.readouterr().err
