"""Canned estimators with TensorFlow 1's defaults."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import keras
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.distribute.experimental import partitioners
from lockstep.errors import ArgumentError
from lockstep.estimator import _canned
from lockstep.estimator._canned import _v1
from lockstep.estimator._heads import RegressionHead
from lockstep.estimator.feature_column import _v1 as columns_v1
from tests.estimator.canned.tools import batches, config, losses

_AGE = fc.numeric_column("age")
_GIVEN: dict[str, Any] = {
    "head": RegressionHead(),
    "hidden_units": [2],
    "feature_columns": [_AGE],
    "linear_feature_columns": [_AGE],
    "dnn_feature_columns": [_AGE],
    "dnn_hidden_units": [2],
    "n_classes": 3,
    "label_dimension": 2,
    "label_vocabulary": ["a", "b", "c"],
    "weight_column": "wt",
    "dropout": 0.5,
    "dnn_dropout": 0.5,
    "activation_fn": "tanh",
    "dnn_activation_fn": "tanh",
    "batch_norm": True,
    "optimizer": "SGD",
    "linear_optimizer": "SGD",
    "dnn_optimizer": "SGD",
    "sparse_combiner": "mean",
    "linear_sparse_combiner": "mean",
    "loss_reduction": "sum",
    "warm_start_from": None,
    "partitioner": None,
    "input_layer_partitioner": None,
}


def _arguments(name: str, tmp_path: Path) -> dict[str, Any]:
    known = {**_GIVEN, "model_dir": str(tmp_path), "config": config(tmp_path)}
    return {parameter: known[parameter] for parameter in inspect.signature(getattr(_v1, name)).parameters}


@pytest.mark.parametrize("name", _v1.__all__)
def test_each_takes_all_arguments_and_only_functions_for_partitioners(tmp_path: Path, name: str) -> None:
    given = _arguments(name, tmp_path)
    assert isinstance(getattr(_v1, name)(**given), getattr(_canned, name))
    assert isinstance(getattr(_v1, name)(*given.values()), getattr(_canned, name))
    for partitioner in set(given) & {"partitioner", "input_layer_partitioner"}:
        with pytest.raises(ArgumentError, match=partitioner):
            getattr(_v1, name)(**{**given, partitioner: object()})
        getattr(_v1, name)(**{**given, partitioner: partitioners.FixedShardsPartitioner(2)})


@pytest.mark.slow
def test_losses_are_sums_and_names_those_of_tensorflow_1(tmp_path: Path) -> None:
    first = _v1.LinearClassifier([_AGE], config=config(tmp_path / "a"))
    found = losses(first, batches(times=2))
    second = _canned.LinearClassifier(
        [_AGE], optimizer=lambda: keras.optimizers.Ftrl(0.2), loss_reduction="sum", config=config(tmp_path / "b")
    )
    assert found == pytest.approx(losses(second, batches(times=2)), rel=1e-5)
    assert "linear/linear_model/age/weights/Ftrl" in first.get_variable_names()


@pytest.mark.slow
def test_both_parts_count_one_step(tmp_path: Path) -> None:
    model = _v1.DNNLinearCombinedRegressor(
        str(tmp_path), linear_feature_columns=[_AGE], dnn_feature_columns=[_AGE], dnn_hidden_units=[2]
    )
    model.train(batches(), steps=2)
    names = model.get_variable_names()
    assert {"linear/linear_model/age/weights/Ftrl", "dnn/hiddenlayer_0/kernel/Adagrad"} <= set(names)
    assert model.get_variable_value("global_step") == 2


def test_unknown_names_of_optimizers() -> None:
    with pytest.raises(ArgumentError, match="names of optimizers are Adagrad, Adam, Ftrl, RMSProp, SGD"):
        _v1.DNNRegressor([2], [_AGE], optimizer="sgd")


def test_columns_of_tensorflow_1(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a\nb\n")
    column = columns_v1.categorical_column_with_vocabulary_file("w", path, 2, 3, None, "string")
    assert column == fc.categorical_column_with_vocabulary_file("w", path, num_oov_buckets=3)
    assert set(columns_v1.__all__) - set(fc.__all__) == {"shared_embedding_columns"}
