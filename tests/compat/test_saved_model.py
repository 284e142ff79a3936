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


@pytest.mark.slow
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


@pytest.mark.slow
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
    with pytest.raises(ArgumentError, match="variables and functions"):
        tf.saved_model.save(tf.Module(), tmp_path / "a")
    with pytest.raises(ArgumentError, match="input_signature"):
        tf.saved_model.save(Scale(), tmp_path / "a", signatures=lambda x: x)
    with pytest.raises(ArgumentError, match=r"options is a tf\.saved_model\.SaveOptions"):
        tf.saved_model.save(Scale(), tmp_path / "a", options=object())
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ArgumentError, match="holds other files"):
        tf.saved_model.save(Scale(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


class Doubling(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scale()
        self.parts = [tf.Variable([1.0, 2.0]), {"w": tf.Variable(3.0, trainable=False)}]

    @tf.function
    def __call__(self, x: Any, training: bool = False) -> Any:
        return x * self.inner.factor * (1.0 if training else 2.0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def set(self, value: Any) -> None:
        self.inner.factor.assign(value)


@pytest.mark.slow
def test_a_loaded_module_is_one_as_it_was_saved(tmp_path: Path) -> None:
    module = Doubling()
    module(tf.constant([1.0, 2.0]))
    module(tf.constant(1.0), training=True)
    tf.saved_model.save(module, tmp_path / "module")
    loaded = tf.saved_model.load(tmp_path / "module")
    assert loaded(tf.constant([1.0, 2.0])).numpy().tolist() == [4.0, 8.0]
    assert loaded(1.0, training=True).numpy() == 2.0
    loaded.set(tf.constant(5.0))
    assert loaded(tf.constant([1.0, 2.0])).numpy().tolist() == [10.0, 20.0]
    assert loaded.inner.factor.numpy() == 5.0 and loaded.inner.scale(tf.constant([1.0])).numpy() == 5.0
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded(tf.constant([1.0, 2.0])) ** 2)
    assert tape.gradient(loss, loaded.inner.factor).numpy() == 2 * 5.0 * 4 * (1 + 4)
    assert len(loaded.variables) == 3 and len(loaded.trainable_variables) == 2
    assert loaded.parts[1]["w"].numpy() == 3.0 and loaded.signatures == {}
    with pytest.raises(ArgumentError, match="It was saved for"):
        loaded(tf.constant([1.0, 2.0, 3.0]))


@pytest.mark.slow
def test_shapes_that_a_signature_leaves_open(tmp_path: Path) -> None:
    class Open(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.w = tf.Variable([1.0, 2.0, 3.0]), tf.Variable(tf.ones([3, 1]))

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return tf.squeeze((x - self.mean) @ self.w, axis=1)

        @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
        def double(self, x: Any) -> Any:
            return {"twice": x * 2.0}

    module = Open()
    any_rank = module.double.get_concrete_function(tf.TensorSpec(None, tf.float32))
    vector = module.double.get_concrete_function(tf.TensorSpec([None], tf.float32))
    tf.saved_model.save(module, tmp_path / "m", signatures={"serving_default": any_rank, "vector": vector})
    loaded = tf.saved_model.load(tmp_path / "m")
    assert loaded(tf.ones([4, 3])).numpy().tolist() == [-3.0] * 4
    for value in (1.0, [1.0], [[1.0]]):
        np.testing.assert_array_equal(loaded.double(tf.constant(value))["twice"], 2 * np.array(value))
    assert list(loaded.signatures) == ["serving_default", "vector"]
    assert loaded.signatures["serving_default"].structured_outputs["twice"].shape.rank is None
    assert loaded.signatures["vector"](x=tf.constant([3.0]))["twice"].numpy().tolist() == [6.0]


def test_a_signature_computes_for_each_replica(tmp_path: Path) -> None:
    tf.keras.utils.set_random_seed(0)  # Of sums next to zero, which some weights give, more would differ.
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,), name="dense")])
    tf.saved_model.save(model, tmp_path / "m")
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        served = tf.saved_model.load(tmp_path / "m").signatures["serving_default"]
    batch = next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(X[:2]))))
    found = strategy.gather(strategy.run(served, args=(batch,))["dense"], axis=0)
    np.testing.assert_allclose(found, model.predict(X[:2], verbose=0), rtol=1e-6)


def test_a_function_reads_variables_of_what_is_saved(tmp_path: Path) -> None:
    other = tf.Variable(1.0)

    class Foreign(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return x * other

    with pytest.raises(ArgumentError, match="has all variables that its functions read"):
        tf.saved_model.save(Foreign(), tmp_path / "m")
