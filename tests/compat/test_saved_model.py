"""`tf.saved_model.save` and `load`: models of Keras, and modules with their functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError

X = np.linspace(-1, 1, 12).reshape(3, 4).astype("float32")


class Scale(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def scale(self, x: Any) -> Any:
        return x * self.factor

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.float32)])
    def both(self, x: Any, y: Any) -> Any:
        return {"sum": x + y, "scaled": x * self.factor}

    def plain(self, x: Any) -> Any:
        return x


def test_functions_of_a_module(tmp_path: Path) -> None:
    module = Scale()
    module.factor.assign(3.0)
    path = str(tmp_path / "module")
    tf.saved_model.save(module, path, signatures={"serving_default": module.scale})
    for _ in range(2):
        loaded = tf.saved_model.load(path)
        assert loaded.scale(tf.constant([1.0, 2.0])).numpy().tolist() == [3.0, 6.0]
        both = loaded.both(tf.constant([1.0]), tf.constant([2.0]))
        assert {k: v.numpy().tolist() for k, v in both.items()} == {"sum": [3.0], "scaled": [3.0]}
        assert not hasattr(loaded, "plain")
        found = loaded.signatures["serving_default"](x=tf.constant([1.0]))
        assert {k: v.numpy().tolist() for k, v in found.items()} == {"output_0": [3.0]}
        # A second export takes the place of the first.
        tf.saved_model.save(module, path, signatures={"serving_default": module.scale})


def test_a_model_of_keras(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,), name="dense"), tf.keras.layers.ReLU()])
    expected = model.predict(X, verbose=0)
    path = tmp_path / "model"
    tf.saved_model.save(model, path)
    loaded = tf.saved_model.load(str(path))
    np.testing.assert_allclose(loaded(tf.constant(X)), expected, rtol=1e-6)
    served = loaded.signatures["serving_default"]
    np.testing.assert_allclose(served(dense_input=tf.constant(X))[model.layers[-1].name], expected, rtol=1e-6)
    np.testing.assert_allclose(tf.keras.models.load_model(path).predict(X, verbose=0), expected, rtol=1e-6)
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(tf.saved_model.load(tmp_path / "saved")(X), expected, rtol=1e-6)


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="variables and functions of a tf.Module"):
        tf.saved_model.save(tf.Module(), tmp_path / "a")
    with pytest.raises(ArgumentError, match="input_signature"):
        tf.saved_model.save(Scale(), tmp_path / "a", signatures=lambda x: x)
    with pytest.raises(ArgumentError, match=r"options is a tf\.saved_model\.SaveOptions"):
        tf.saved_model.save(Scale(), tmp_path / "a", options=object())
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="holds other files"):
        tf.saved_model.save(Scale(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
