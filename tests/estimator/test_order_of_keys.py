"""Features and predictions keep the order of their keys."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep import estimator
from lockstep.data import Dataset
from lockstep.estimator import train

FEATURES = {name: np.full((6, 1), value, "float32") for name, value in (("z", 1), ("b", 2), ("m", 3))}
TEXT = np.array([[b"x"]] * 6, object)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    assert list(features) == ["z", "b", "m", "a text"] and (labels is None or list(labels) == ["y", "c"])
    numbers = jnp.concatenate([v for name, v in features.items() if name != "a text"], axis=-1)
    loss = (numbers @ jnp.array([1.0, 10.0, 100.0])).mean() + keras.layers.Dense(1)(numbers).mean()
    predictions = {"z": numbers, "c": numbers[:, 0]}
    step = train.GradientDescentOptimizer(1e-6).minimize(loss, train.get_or_create_global_step())
    return estimator.EstimatorSpec(mode, predictions, loss, step)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_model_fn_sees_columns_in_order(tmp_path: Path, kind: Any, replicas: int) -> None:
    labels = kind(y=np.zeros(6, "float32"), c=np.zeros(6, "float32"))

    def input_fn() -> Any:
        return Dataset.from_tensor_slices((kind({**FEATURES, "a text": TEXT}), labels)).batch(3 // replicas)

    strategy = ls.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])
    config = estimator.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    trained = estimator.Estimator(model_fn, tmp_path, config)
    trained.train(input_fn, steps=2)
    assert trained.evaluate(input_fn, steps=1)["loss"] == pytest.approx(321, abs=9)
    for found in (next(trained.predict(input_fn)), next(trained.predict(input_fn, yield_single_examples=False))):
        assert type(found) is dict and list(found) == ["z", "c"]
        assert np.ravel(found["z"])[:3].tolist() == [1, 2, 3]


def test_arrays_and_iterators_of_an_input_fn(tmp_path: Path) -> None:
    def arrays() -> Any:
        return {**FEATURES, "a text": TEXT}, {"y": np.zeros(6, "float32"), "c": np.zeros(6, "float32")}

    def iterator() -> Any:
        import lockstep.compat.tensorflow as tf

        dataset = tf.data.Dataset.from_tensor_slices(arrays()).batch(3)
        features, labels = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        assert list(features) == ["z", "b", "m", "a text"]
        return features, labels

    trained = estimator.Estimator(model_fn, tmp_path)
    for input_fn in (arrays, iterator):
        trained.train(input_fn, steps=1)
