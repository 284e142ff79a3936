"""What goes with canned estimators: further metrics, how to parse, specs of heads, summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.data._example.features import FixedLenFeature, VarLenFeature
from lockstep.errors import ArgumentError
from lockstep.estimator._canned import (
    LinearRegressor,
    add_metrics,
    classifier_parse_example_spec,
    regressor_parse_example_spec,
)
from lockstep.estimator._canned._parts import create_optimizer
from lockstep.estimator._estimator_spec import DEFAULT_SIGNATURE
from lockstep.estimator._heads import BinaryClassHead, MultiHead, RegressionHead
from lockstep.estimator._model_fn.records import group
from lockstep.estimator.train import AdamOptimizer
from tests.estimator.canned.tools import LABELS, batches, config

_AGE = fc.numeric_column("age")
_LOGITS = np.zeros((4, 1), np.float32)


@pytest.mark.slow
def test_metrics_are_added(tmp_path: Path) -> None:
    def largest(features: Any, labels: Any, predictions: Any, config: Any) -> dict[str, Any]:
        mean, error = keras.metrics.Mean(), keras.metrics.MeanAbsoluteError()
        mean.update_state(features["age"])
        error.update_state(labels[:, None], predictions["predictions"])
        return {"age": mean, "label/mean": error, "seed": (jnp.float32(config.tf_random_seed),) * 2}

    model = LinearRegressor([_AGE], config=config(tmp_path))
    model.train(batches())
    more = add_metrics(model, largest)
    plain, found = model.evaluate(batches()), more.evaluate(batches())
    assert set(found) == {*plain, "age", "seed"}
    assert found["seed"] == 1
    assert found["average_loss"] == plain["average_loss"]
    assert found["label/mean"] != plain["label/mean"]
    with pytest.raises(ArgumentError, match=r"some of features, labels, predictions, config.*\['other'\]"):
        add_metrics(model, lambda other: {})


def test_how_to_parse_for_classifiers_and_regressors() -> None:
    columns = [_AGE, fc.categorical_column_with_hash_bucket("w", 5)]
    features = {"age": FixedLenFeature((1,), np.float32), "w": VarLenFeature("string")}
    assert classifier_parse_example_spec(columns, "y", weight_column="wt") == {
        **features,
        "y": FixedLenFeature((1,), np.int64),
        "wt": FixedLenFeature((1,), np.float32),
    }
    assert classifier_parse_example_spec(columns, "y", "string", "no")["y"] == FixedLenFeature((1,), "string", "no")
    weights = fc.numeric_column("wt", shape=2)
    assert regressor_parse_example_spec(columns, "y", label_dimension=3, weight_column=weights) == {
        **features,
        "y": FixedLenFeature((3,), np.float32),
        "wt": FixedLenFeature((2,), np.float32),
    }


@pytest.mark.parametrize(("label", "weights"), [("age", None), (None, None), ("y", "age"), ("y", "y"), ("y", 3)])
def test_labels_and_weights_are_no_features(label: Any, weights: Any) -> None:
    with pytest.raises(ArgumentError, match="Received"):
        classifier_parse_example_spec([_AGE], label, weight_column=weights)


def test_exactly_one_of_optimizer_and_train_op_fn() -> None:
    head = RegressionHead()
    for given in ({}, {"optimizer": "SGD", "train_op_fn": lambda loss: group()}):
        with pytest.raises(ArgumentError, match="exactly one of optimizer and train_op_fn"):
            head.create_estimator_spec({}, "train", _LOGITS, LABELS[:4], **given)
    with pytest.raises(ArgumentError, match="update_ops must be a list"):
        head.create_estimator_spec({}, "train", _LOGITS, LABELS[:4], train_op_fn=lambda loss: group(), update_ops=3)  # pyright: ignore[reportArgumentType]
    spec = head.create_estimator_spec({}, "train", _LOGITS, LABELS[:4], train_op_fn=lambda loss: group())
    assert float(spec.loss) == 0.5


def test_what_is_exported() -> None:
    spec = BinaryClassHead().create_estimator_spec({}, "infer", _LOGITS)
    assert set(spec.export_outputs or {}) == {DEFAULT_SIGNATURE, "classification", "predict", "regression"}
    several = MultiHead([BinaryClassHead(name="a"), RegressionHead(name="b")])
    outputs = several.create_estimator_spec({}, "infer", np.zeros((4, 2), np.float32)).export_outputs or {}
    assert set(outputs) == {
        DEFAULT_SIGNATURE,
        "a",
        "a/classification",
        "a/predict",
        "a/regression",
        "b",
        "b/predict",
        "b/regression",
        "predict",
    }
    assert {"a/logistic", "b/predictions"} <= set(outputs["predict"].outputs)


def test_optimizers_are_taken_by_name_as_objects_and_from_functions() -> None:
    mine = AdamOptimizer(0.1)
    assert create_optimizer(mine) is mine
    assert create_optimizer(lambda: mine) is mine
    assert isinstance(create_optimizer(keras.optimizers.SGD), keras.optimizers.SGD)
    assert float(create_optimizer("Ftrl", 0.2).learning_rate) == pytest.approx(0.2)
    assert float(create_optimizer("Adagrad").learning_rate) == pytest.approx(0.001)
