"""`lockstep export`: what is written is loaded by its own runtime, and gives the model's results.

TensorFlow, jax2onnx and onnxruntime are no part of the development set: those tests run where they are installed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep import saved_model
from lockstep._launch.cli import main
from lockstep.errors import UnsupportedError
from lockstep.saved_model.internal import to_tensorflow

has_tensorflow = importlib.util.find_spec("tensorflow") is not None
has_onnx = importlib.util.find_spec("jax2onnx") is not None
needs_tensorflow = pytest.mark.skipif(not has_tensorflow, reason="TensorFlow is not installed")


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["export", *map(str, arguments)])
    return int(ended.value.code or 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    inputs = keras.Input((4, 4, 1)), keras.Input((2,), dtype="int32")
    image = keras.layers.Flatten()(keras.layers.Conv2D(2, 3, activation="relu")(inputs[0]))
    words = keras.layers.Flatten()(keras.layers.Embedding(5, 3)(inputs[1]))
    keras.Model(inputs, keras.layers.Dense(3)(keras.layers.concatenate([image, words]))).save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


@pytest.mark.slow
def test_a_model_of_keras(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, tmp_path / "copy.keras") == 0
    assert "results differ by 0.0e+00 at most" in capsys.readouterr().out


def test_what_cannot_be_is_said(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, tmp_path / "model.pb") == 2
    assert "An export is name.onnx, name.keras, or a directory" in capsys.readouterr().err
    assert run(tmp_path / "nowhere.keras", tmp_path / "copy.keras") == 2
    assert "A model is read from a file" in capsys.readouterr().err


@pytest.mark.skipif(has_tensorflow, reason="TensorFlow is installed")
def test_without_tensorflow_the_extra_is_named(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, tmp_path / "served") == 2
    assert "pip install 'lockstep[export]'" in capsys.readouterr().err
    with pytest.raises(UnsupportedError, match=r"lockstep\[export\]"):
        to_tensorflow(tmp_path, tmp_path / "served")
    assert not (tmp_path / "served").exists()


@needs_tensorflow
def test_a_saved_model_of_a_keras_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, tmp_path / "served") == 0
    assert "a SavedModel." in capsys.readouterr().out


@pytest.mark.skipif(not has_onnx, reason="jax2onnx is not installed")
def test_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh")]).save(tmp_path / "model.keras")
    assert run(tmp_path / "model.keras", tmp_path / "model.onnx") == 0
    assert "ONNX." in capsys.readouterr().out


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An Estimator with numbers, words and hashes, exported for serialised examples."""
    column = tf.feature_column
    words = column.categorical_column_with_vocabulary_list("w", ["a", "b"], num_oov_buckets=2)
    columns = [
        column.numeric_column("x", shape=(3,)),
        column.indicator_column(words),
        column.embedding_column(column.categorical_column_with_hash_bucket("h", 7), 2),
    ]
    estimator = tf.estimator.DNNClassifier(
        [4], columns, n_classes=3, label_vocabulary=["p", "q", "r"], model_dir=str(tmp_path / "model")
    )
    features = {
        "x": np.ones((4, 3), np.float32),
        "w": np.array([b"a", b"b", b"c", b""], object),
        "h": np.array([b"a", b"u", b"c", b"z"], object),
    }
    labels = np.array([b"p", b"q", b"r", b"p"], object)
    estimator.train(lambda: tf.data.Dataset.from_tensor_slices((features, labels)).batch(4), steps=2)
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(column.make_parse_example_spec(columns))
    directory = estimator.export_saved_model(str(tmp_path / "export"), receiver)
    return Path(directory.decode() if isinstance(directory, bytes) else directory)


def serialized(word: bytes | None, bucket: bytes) -> bytes:
    train: Any = tf.train
    features = {
        "x": train.Feature(float_list=train.FloatList(value=[0.1, 0.2, 0.3])),
        "h": train.Feature(bytes_list=train.BytesList(value=[bucket])),
    }
    if word is not None:
        features["w"] = train.Feature(bytes_list=train.BytesList(value=[word]))
    return train.Example(features=train.Features(feature=features)).SerializeToString()


@needs_tensorflow
def test_a_saved_model_parses_examples_and_looks_words_up(exported: Path, tmp_path: Path) -> None:
    tensorflow = importlib.import_module("tensorflow")
    model = saved_model.load(exported)
    loaded = tensorflow.saved_model.load(to_tensorflow(exported, tmp_path / "served"))
    examples = [serialized(word, bucket) for word in (b"a", b"b", b"other", b"", None) for bucket in (b"a", b"zzz")]
    for name, signature in model.signatures.items():
        (key,) = signature.inputs
        # One example may have a program of its own.
        for count in (1, 2, len(examples)):
            expected = signature({key: np.array(examples[:count], object)})
            found = loaded.signatures[name](**{key: tensorflow.constant(examples[:count])})
            for output, value in expected.items():
                if value.dtype == object:
                    assert found[output].numpy().tolist() == value.tolist()
                else:
                    np.testing.assert_allclose(found[output].numpy(), value, rtol=1e-5, atol=1e-7)


@needs_tensorflow
def test_an_export_of_lockstep(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(exported, tmp_path / "served") == 0
    assert "predict: loaded" in capsys.readouterr().out
    assert run(exported, tmp_path / "model.keras") == 2
    assert "is compiled, and has no layers" in capsys.readouterr().err
