from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator._canned import BaselineClassifier, BaselineRegressor
from lockstep.estimator._canned._baseline import batch_size
from tests.estimator.canned.tools import COUNT, batches, config


@pytest.mark.slow
def test_a_classifier_learns_how_frequent_classes_are(tmp_path: Path) -> None:
    labels = np.array([0, 1, 1, 2])[np.arange(COUNT) % 4]
    model = BaselineClassifier(n_classes=3, config=config(tmp_path))
    model.train(batches(labels, times=60))
    row = next(iter(model.predict(batches(labels))))
    assert row["probabilities"] == pytest.approx([0.25, 0.5, 0.25], abs=0.02)
    assert model.get_variable_value("baseline/bias").shape == (3,)


def test_a_regressor_learns_the_weighted_mean(tmp_path: Path) -> None:
    labels, weights = np.arange(4, dtype=np.float32), np.array([1, 1, 1, 5], np.float32)
    model = BaselineRegressor(weight_column="wt", config=config(tmp_path))
    model.train(batches(labels, times=150, x=np.zeros(4, np.float32), wt=weights))
    without_weights = batches(labels, x=np.zeros(4, np.float32))
    assert next(iter(model.predict(without_weights)))["predictions"] == pytest.approx([18 / 8], abs=0.02)


def test_features_tell_how_many_examples_there_are() -> None:
    three, four = np.zeros(3), np.zeros((4, 1))
    assert batch_size({"x": three}, None) == batch_size(three, None) == 3
    assert batch_size({"x": three, "wt": four}, "wt") == 3
    for features in ({}, {"wt": four}, {"x": three, "y": four}):
        with pytest.raises(ArgumentError, match="how many examples there are"):
            batch_size(features, "wt")
