"""Linear estimators. The losses were computed by TensorFlow 2.15."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.errors import ArgumentError
from lockstep.estimator._canned import LinearClassifier, LinearEstimator, LinearRegressor
from lockstep.estimator._heads import MultiLabelHead
from lockstep.estimator._hooks import NanLossDuringTrainingError
from tests.estimator.canned.tools import COUNT, batches, config, losses, text

_AGE = fc.numeric_column("age")
_WORDS = fc.categorical_column_with_vocabulary_list("w", ["a", "b", "c"], num_oov_buckets=2)
_COLUMNS = [_AGE, _WORDS, fc.crossed_column(["w", fc.bucketized_column(_AGE, [-0.5, 0.5])], 11)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("Ftrl", [1.213008, 1.605138, 1.64034, 1.108855, 1.529789, 1.507004]),
        ("Adagrad", [1.213008, 1.605138, 1.64034, 1.108855, 1.529789, 1.507004]),
        ("Adam", [1.213008, 1.929726, 1.510319, 0.87701, 1.600891, 1.43421]),
        ("RMSProp", [1.213008, 3.535903, 1.838478, 0.772091, 2.393201, 1.623779]),
    ],
)
def test_optimizers_given_by_name_train_as_in_tensorflow(tmp_path: Path, optimizer: str, expected: list[float]) -> None:
    model = LinearClassifier(_COLUMNS, optimizer=optimizer, weight_column="wt", config=config(tmp_path))
    assert losses(model, batches(times=2)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_a_classifier_learns_what_tensorflow_learns(tmp_path: Path) -> None:
    model = LinearClassifier(_COLUMNS, optimizer="SGD", weight_column="wt", config=config(tmp_path))
    expected = [1.213008, 1.471112, 1.600078, 1.165606, 1.450689, 1.531546]
    assert losses(model, batches(times=2)) == pytest.approx(expected, abs=1e-5)
    assert model.evaluate(batches()) == pytest.approx(
        {
            "accuracy": 0.666667,
            "accuracy_baseline": 0.5,
            "auc": 0.71875,
            "auc_precision_recall": 0.722565,
            "average_loss": 0.651352,
            "label/mean": 0.5,
            "loss": 1.302704,
            "precision": 0.666667,
            "prediction/mean": 0.513037,
            "recall": 0.666667,
            "global_step": 6,
        },
        abs=1e-5,
    )
    assert [name for name in model.get_variable_names() if name.startswith("linear/")] == [
        "linear/linear_model/age/weights",
        "linear/linear_model/age_bucketized_X_w/weights",
        "linear/linear_model/bias_weights",
        "linear/linear_model/w/weights",
    ]
    rows = list(model.predict(batches()))
    assert len(rows) == COUNT
    assert {name: value.shape for name, value in rows[0].items()} == {
        "logits": (1,),
        "logistic": (1,),
        "probabilities": (2,),
        "class_ids": (1,),
        "classes": (1,),
        "all_class_ids": (2,),
        "all_classes": (2,),
    }
    assert rows[0]["classes"][0] == str(rows[0]["class_ids"][0]).encode()


@pytest.mark.slow
def test_without_an_optimizer_it_is_ftrl_at_the_rate_of_tensorflow(tmp_path: Path) -> None:
    model = LinearRegressor(_COLUMNS, optimizer=None, sparse_combiner="mean", config=config(tmp_path))
    expected = [0.5, 0.406475, 0.474804, 0.253142, 0.449682, 0.290007]
    assert losses(model, batches(times=2)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_words_as_labels_and_a_head_of_ones_own(tmp_path: Path) -> None:
    words = text("no", "yes", "maybe")[np.arange(COUNT) % 3]
    age = fc.numeric_column("x", shape=3)
    data = {"x": np.eye(3, dtype=np.float32)[np.arange(COUNT) % 3]}
    named = LinearClassifier([age], n_classes=3, label_vocabulary=["no", "yes", "maybe"], config=config(tmp_path / "a"))
    named.train(batches(words, times=30, **data))
    assert named.evaluate(batches(words, **data))["accuracy"] == 1
    assert [row["classes"][0] for row in named.predict(batches(words, **data))][:3] == [b"no", b"yes", b"maybe"]
    labels = np.eye(3, dtype=np.int64)[np.arange(COUNT) % 3]
    several = LinearEstimator(MultiLabelHead(3), [age], optimizer="Adagrad", config=config(tmp_path / "b"))
    found = losses(several, batches(labels, times=30, **data))
    assert found[-1] < found[0] / 2


def test_warm_start_takes_weights_over(tmp_path: Path) -> None:
    first = LinearRegressor([_AGE], config=config(tmp_path / "a"))
    first.train(batches(times=2))
    second = LinearRegressor([_AGE], config=config(tmp_path / "b"), warm_start_from=str(tmp_path / "a"))
    assert second.evaluate(batches())["loss"] == pytest.approx(first.evaluate(batches())["loss"])


def test_wrong_arguments_are_refused_at_once(tmp_path: Path) -> None:
    makers: list[Any] = [
        lambda: LinearClassifier([], model_dir=str(tmp_path)),
        lambda: LinearClassifier([_AGE], n_classes=1, model_dir=str(tmp_path)),
        lambda: LinearClassifier([_AGE], sparse_combiner="max", model_dir=str(tmp_path)),
        lambda: LinearClassifier(["age"], model_dir=str(tmp_path)),
    ]
    for make in makers:
        with pytest.raises(ArgumentError, match="Received"):
            make()


def test_an_optimizer_that_there_is_none_of(tmp_path: Path) -> None:
    for optimizer, message in (("Sgd", "names of optimizers are"), (3, "optimizer is one of")):
        model = LinearClassifier([_AGE], optimizer=optimizer, config=config(tmp_path))
        with pytest.raises(ArgumentError, match=message):
            model.train(batches())


def test_a_category_that_there_is_not_stops_training(tmp_path: Path) -> None:
    column = fc.categorical_column_with_identity("id", 3)
    model = LinearRegressor([column], config=config(tmp_path))
    with pytest.raises(NanLossDuringTrainingError):
        model.train(batches(np.ones(4), id=np.array([0, 1, 2, 3])))
