from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep import checkpoint
from lockstep.errors import ArgumentError
from lockstep.estimator import Estimator, EstimatorSpec
from lockstep.estimator._canned import (
    DNNClassifier,
    DNNEstimator,
    DNNRegressor,
    dnn_logit_fn_builder,
    linear_logit_fn_builder,
)
from lockstep.estimator._heads import PoissonRegressionHead, RegressionHead
from lockstep.estimator.train import GradientDescentOptimizer, get_global_step
from tests.estimator.canned.tools import COUNT, FEATURES, LABELS, batches, config, losses, text

_AGE = fc.numeric_column("age")
_WORDS = fc.categorical_column_with_vocabulary_list("w", ["a", "b", "c"])
_COLUMNS = [_AGE, fc.embedding_column(_WORDS, 2)]


def _numpy_losses(values: dict[str, Any], rate: float, steps: int) -> list[float]:
    """The same network by hand: one hidden layer, squared differences, gradient descent."""
    names = {
        "w1": "dnn/hiddenlayer_0/kernel",
        "b1": "dnn/hiddenlayer_0/bias",
        "w2": "dnn/logits/kernel",
        "b2": "dnn/logits/bias",
        "e": "dnn/input_from_feature_columns/input_layer/w_embedding/embedding_weights",
    }
    p = {short: values[name].astype(np.float64) for short, name in names.items()}
    found: list[float] = []
    for step in range(steps):
        rows = np.arange(4 * step, 4 * step + 4) % COUNT
        words = [["a", "b", "c"].index(w) if w in ("a", "b", "c") else -1 for w in FEATURES["w"][rows, 0]]
        embedded = np.array([p["e"][w] if w >= 0 else np.zeros(2) for w in words])
        x = np.hstack([FEATURES["age"][rows], embedded])
        before = x @ p["w1"] + p["b1"]
        hidden = np.maximum(before, 0)
        wrong = hidden @ p["w2"] + p["b2"] - LABELS[rows, None]
        found.append(float((wrong**2).mean()))
        out = 2 * wrong / wrong.size
        inner = (out @ p["w2"].T) * (before > 0)
        lookups = inner @ p["w1"].T
        p["w2"] -= rate * hidden.T @ out
        p["b2"] -= rate * out.sum(0)
        p["w1"] -= rate * x.T @ inner
        p["b1"] -= rate * inner.sum(0)
        for word, gradient in zip(words, lookups[:, 1:], strict=True):
            if word >= 0:
                p["e"][word] -= rate * gradient
    return found


@pytest.mark.slow
def test_a_regressor_trains_as_by_hand(tmp_path: Path) -> None:
    model = DNNRegressor([4], _COLUMNS, optimizer=lambda: keras.optimizers.SGD(0.1), config=config(tmp_path))
    found = losses(model, batches(times=2))
    first = checkpoint.load(str(tmp_path / "model.ckpt-0")).arrays
    assert found == pytest.approx(_numpy_losses(first, 0.1, 6), abs=1e-5)
    assert found[-1] != found[0]
    assert set(model.evaluate(batches())) == {"average_loss", "label/mean", "prediction/mean", "loss", "global_step"}
    assert next(iter(model.predict(batches())))["predictions"].shape == (1,)


@pytest.mark.slow
def test_a_classifier_with_everything(tmp_path: Path) -> None:
    words = text("p", "q", "r")[np.arange(COUNT) % 3]
    indicator = fc.indicator_column(fc.categorical_column_with_hash_bucket("w", 5))
    model = DNNClassifier(
        [5, 3],
        [*_COLUMNS, indicator],
        n_classes=3,
        label_vocabulary=["p", "q", "r"],
        weight_column="wt",
        dropout=0.1,
        batch_norm=True,
        activation_fn="tanh",
        config=config(tmp_path),
    )
    model.train(batches(words, times=2))
    names = model.get_variable_names()
    assert [name for name in names if name.startswith("dnn/") and "seed" not in name] == [
        "dnn/hiddenlayer_0/batchnorm_0/beta",
        "dnn/hiddenlayer_0/batchnorm_0/gamma",
        "dnn/hiddenlayer_0/batchnorm_0/moving_mean",
        "dnn/hiddenlayer_0/batchnorm_0/moving_variance",
        "dnn/hiddenlayer_0/bias",
        "dnn/hiddenlayer_0/kernel",
        "dnn/hiddenlayer_1/batchnorm_1/beta",
        "dnn/hiddenlayer_1/batchnorm_1/gamma",
        "dnn/hiddenlayer_1/batchnorm_1/moving_mean",
        "dnn/hiddenlayer_1/batchnorm_1/moving_variance",
        "dnn/hiddenlayer_1/bias",
        "dnn/hiddenlayer_1/kernel",
        "dnn/input_from_feature_columns/input_layer/w_embedding/embedding_weights",
        "dnn/logits/bias",
        "dnn/logits/kernel",
    ]
    # Six steps of momentum 0.999 from zero: the moments have moved, and a little.
    assert 0 < np.abs(model.get_variable_value("dnn/hiddenlayer_0/batchnorm_0/moving_mean")).max() < 0.02
    rows = list(model.predict(batches(words)))
    assert all(row["classes"][0] in (b"p", b"q", b"r") for row in rows)
    # Examples 0, 5 and 10 have the same features; dropout, which is for training, would tell them apart.
    assert rows[0]["logits"].tolist() == rows[5]["logits"].tolist() == rows[10]["logits"].tolist()


@pytest.mark.slow
def test_embeddings_from_a_checkpoint(tmp_path: Path) -> None:
    first = DNNRegressor([2], _COLUMNS, config=config(tmp_path / "a"))
    first.train(batches())
    name = "dnn/input_from_feature_columns/input_layer/w_embedding/embedding_weights"
    taken = fc.embedding_column(_WORDS, 2, ckpt_to_load_from=tmp_path / "a", tensor_name_in_ckpt=name, trainable=False)
    second = DNNRegressor([2], [_AGE, taken], config=config(tmp_path / "b"))
    second.train(batches())
    np.testing.assert_array_equal(second.get_variable_value(name), first.get_variable_value(name))
    wrong = fc.embedding_column(_WORDS, 3, ckpt_to_load_from=tmp_path / "a", tensor_name_in_ckpt=name)
    with pytest.raises(ArgumentError, match=r"must have the column's shape, \(3, 3\)"):
        DNNRegressor([2], [wrong], config=config(tmp_path / "c")).train(batches())
    missing = fc.embedding_column(_WORDS, 2, ckpt_to_load_from=tmp_path / "a", tensor_name_in_ckpt="none")
    with pytest.raises(ArgumentError, match=r"Received: 'none'; there are: .*dnn/logits/bias"):
        DNNRegressor([2], [missing], config=config(tmp_path / "d")).train(batches())


@pytest.mark.slow
def test_shared_embeddings_are_one_variable(tmp_path: Path) -> None:
    other = fc.categorical_column_with_vocabulary_list("w2", ["a", "b", "c"])
    columns = fc.shared_embeddings([_WORDS, other], 2, initializer=keras.initializers.Constant(1.0))
    model = DNNEstimator(PoissonRegressionHead(), [2], columns, optimizer="SGD", config=config(tmp_path))
    data = {**FEATURES, "w2": FEATURES["w"][::-1].copy()}
    model.train(batches(times=2, **data))
    assert "w_w2_shared_embedding" in model.get_variable_names()
    assert not (model.get_variable_value("w_w2_shared_embedding") == 1).all()


@pytest.mark.slow
def test_logit_functions_in_a_model_fn_of_ones_own(tmp_path: Path) -> None:
    deep = dnn_logit_fn_builder(1, [2], [_AGE], "relu", None, None, False)
    wide = linear_logit_fn_builder(1, [_WORDS], "mean")
    head = RegressionHead()

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        logits = deep(features, mode) + wide(features)
        train = lambda loss: GradientDescentOptimizer(0.1).minimize(loss, global_step=get_global_step())  # noqa: E731
        return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train)

    model = Estimator(model_fn, config=config(tmp_path))
    found = losses(model, batches(times=10))
    assert found[-1] < found[0]
    assert {"hiddenlayer_0/kernel", "logits/bias", "linear_model/w/weights"} <= set(model.get_variable_names())


def test_wrong_arguments_are_refused_at_once(tmp_path: Path) -> None:
    makers: list[Any] = [
        lambda: DNNRegressor([], [_AGE], model_dir=str(tmp_path)),
        lambda: DNNRegressor([0], [_AGE], model_dir=str(tmp_path)),
        lambda: DNNRegressor([2], [_AGE], dropout=1.0, model_dir=str(tmp_path)),
        lambda: DNNRegressor([2], [_WORDS], model_dir=str(tmp_path)),
        lambda: DNNRegressor([2], [_AGE], label_dimension=0, model_dir=str(tmp_path)),
        lambda: dnn_logit_fn_builder("1", [2], [_AGE], "relu", None, None, False),
        lambda: dnn_logit_fn_builder(1, [2], [_AGE], "relu", None, object(), False),  # pyright: ignore
    ]
    for make in makers:
        with pytest.raises(ArgumentError, match="Received"):
            make()
