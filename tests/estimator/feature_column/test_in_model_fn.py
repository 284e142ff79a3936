"""Columns in a model_fn: names of variables, text, and the functions of TensorFlow 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.data import Dataset
from lockstep.estimator import Estimator, EstimatorSpec, RunConfig
from lockstep.estimator.train import GradientDescentOptimizer, get_global_step
from tests.estimator.feature_column.examples import FEATURES, categories

_WORDS = fc.categorical_column_with_vocabulary_list("a", ["x", "yy"])
_NUMBER = fc.numeric_column("v")


def _input_fn() -> Dataset:
    return Dataset.from_tensor_slices((FEATURES, np.ones(4, np.float32))).batch(4)


@pytest.mark.slow
def test_variables_are_named_as_in_tensorflow_1(tmp_path: Path) -> None:
    seen: dict[Any, Any] = {}

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        columns = [_NUMBER, fc.embedding_column(_WORDS, 2)]
        deep = fc.input_layer(features, columns, cols_to_vars=seen)
        again = fc.input_layer(features, columns, trainable=False)
        wide = fc.linear_model(features, [_WORDS, _NUMBER], cols_to_vars=seen)
        loss = jnp.mean((wide[:, 0] + jnp.sum(deep + again, axis=1) - labels) ** 2)
        train_op = GradientDescentOptimizer(0.1).minimize(loss, global_step=get_global_step())
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = Estimator(model_fn, config=RunConfig(model_dir=str(tmp_path)))
    model.train(_input_fn)
    assert model.get_variable_names() == [
        "global_step",
        "input_layer/a_embedding/embedding_weights",
        "input_layer_1/a_embedding/embedding_weights",
        "linear_model/a/weights",
        "linear_model/bias_weights",
        "linear_model/v/weights",
    ]
    assert [variable.path for variable in seen["bias"]] == ["linear_model/bias_weights"]
    assert [variable.path for variable in seen[_WORDS]] == ["linear_model/a/weights"]
    assert seen[_NUMBER][0].shape == (1, 1)


@pytest.mark.slow
def test_text_and_numbers_in_a_model_fn_give_the_same_categories(tmp_path: Path) -> None:
    buckets = fc.bucketized_column(_NUMBER, [1.0, 2.5])
    columns = [
        fc.crossed_column(["a", "n", buckets], 97),
        fc.categorical_column_with_hash_bucket("a", 11),
        fc.categorical_column_with_vocabulary_list("a", ["x"], num_oov_buckets=3),
        fc.categorical_column_with_hash_bucket("n", 11, dtype=np.int64),
    ]

    def model_fn(features: Any, mode: str) -> EstimatorSpec:
        found = [fc.input_layer(features, [fc.indicator_column(column)]) for column in columns]
        return EstimatorSpec(mode, predictions={str(number): values for number, values in enumerate(found)})

    model = Estimator(model_fn, config=RunConfig(model_dir=str(tmp_path)))
    rows = list(model.predict(_input_fn))
    for number, column in enumerate(columns):
        assert [np.flatnonzero(row[str(number)]).tolist() for row in rows] == categories(column)
