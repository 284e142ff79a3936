from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.distribute import MirroredStrategy
from lockstep.errors import ArgumentError
from lockstep.estimator import RunConfig
from lockstep.estimator._canned import (
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor,
)
from lockstep.estimator._heads import BinaryClassHead, MultiHead, RegressionHead
from tests.estimator.canned.tools import LABELS, batches, config, losses, text

_AGE = fc.numeric_column("age")
_WORDS = fc.categorical_column_with_vocabulary_list("w", ["a", "b", "c"])
_DEEP: dict[str, Any] = {"dnn_feature_columns": [_AGE, fc.indicator_column(_WORDS)], "dnn_hidden_units": [3]}
_WIDE: dict[str, Any] = {"linear_feature_columns": [fc.crossed_column(["w", fc.bucketized_column(_AGE, [0.0])], 13)]}


@pytest.mark.slow
def test_both_parts_learn_and_count_one_step(tmp_path: Path) -> None:
    model = DNNLinearCombinedRegressor(
        **_WIDE, **_DEEP, linear_optimizer="SGD", dnn_optimizer="SGD", config=config(tmp_path)
    )
    found = losses(model, batches(times=3))
    assert len(found) == 9
    assert model.get_variable_value("global_step") == 9
    assert found[-3] + found[-2] + found[-1] < found[0] + found[1] + found[2]
    before = model.get_variable_value("linear/linear_model/age_bucketized_X_w/weights")
    assert np.abs(before).max() > 0
    assert {"dnn/hiddenlayer_0/kernel", "dnn/logits/bias", "linear/linear_model/bias_weights"} <= set(
        model.get_variable_names()
    )


@pytest.mark.slow
def test_the_parts_are_trained_at_their_own_rates(tmp_path: Path) -> None:
    model = DNNLinearCombinedRegressor(**_WIDE, **_DEEP, config=config(tmp_path))
    model.train(batches(), steps=1)
    assert model.get_variable_value("ftrl/learning_rate") == pytest.approx(0.005)
    assert model.get_variable_value("adagrad/learning_rate") == pytest.approx(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("part", [_WIDE, _DEEP])
def test_one_part_is_enough(tmp_path: Path, part: dict[str, Any]) -> None:
    model = DNNLinearCombinedRegressor(**part, config=config(tmp_path))
    model.train(batches(), steps=2)
    assert model.get_variable_value("global_step") == 2


@pytest.mark.slow
def test_replicas_learn_what_one_learns(tmp_path: Path) -> None:
    words = text("no", "yes")[LABELS]

    def trained(replicas: int) -> dict[str, Any]:
        strategy = MirroredStrategy([f"CPU:{number}" for number in range(replicas)]) if replicas > 1 else None
        path = str(tmp_path / str(replicas))
        model = DNNLinearCombinedClassifier(
            **_WIDE,
            **_DEEP,
            linear_optimizer="SGD",
            dnn_optimizer="SGD",
            label_vocabulary=["no", "yes"],
            loss_reduction="sum",
            config=RunConfig(model_dir=path, tf_random_seed=1, train_distribute=strategy),
        )
        model.train(batches(words, size=4 // replicas, times=2))
        return {name: model.get_variable_value(name) for name in model.get_variable_names()}

    one, two = trained(1), trained(2)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_several_heads(tmp_path: Path) -> None:
    head = MultiHead([BinaryClassHead(name="class"), RegressionHead(name="number")])
    labels = {"class": LABELS, "number": LABELS.astype(np.float32)}
    model = DNNLinearCombinedEstimator(head, **_WIDE, config=config(tmp_path))
    model.train(batches(labels))
    row = next(iter(model.predict(batches(labels))))
    assert {("class", "classes"), ("number", "predictions")} <= set(row)


def test_columns_and_units_are_demanded(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Either linear_feature_columns or dnn_feature_columns"):
        DNNLinearCombinedRegressor(str(tmp_path))
    with pytest.raises(ArgumentError, match="dnn_hidden_units must be defined"):
        DNNLinearCombinedRegressor(str(tmp_path), dnn_feature_columns=[_AGE])
