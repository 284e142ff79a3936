"""Estimators that TensorFlow 2.15 has trained 5 steps, and that go on here: the next losses are TensorFlow's own.

`tests/checkpoint/data/make.py` made the checkpoints, and the losses that TensorFlow has in the steps that follow.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep import checkpoint
from lockstep.errors import ArgumentError, CheckpointError
from tests.support.arrays import load_arrays

v1: Any = tf.compat.v1
DATA = Path(__file__).parents[1] / "checkpoint" / "data"
ROWS = np.random.RandomState(7).uniform(-1, 1, (64, 3)).astype(np.float32)
LABELS = (ROWS[:, :1] - 2 * ROWS[:, 1:2] > 0).astype(np.int64)
COLUMNS = [tf.feature_column.numeric_column("x", shape=(3,))]


def input_fn() -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": ROWS}, LABELS)).batch(16).repeat()


def model_fn_of(layers: str, optimizer: str) -> Any:
    """The model_fn of `make.py`."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        if layers == "v1":
            hidden = v1.layers.dense(features["x"], 4, activation=tf.nn.tanh, name="hidden")
            hidden = v1.layers.batch_normalization(hidden, training=mode == "train")
            logits = v1.layers.dense(hidden, 1)
        else:
            hidden = tf.keras.layers.Dense(4, activation="tanh")(features["x"])
            logits = tf.keras.layers.Dense(1)(hidden)
        loss = v1.losses.sigmoid_cross_entropy(labels, logits)
        step = v1.train.get_or_create_global_step()
        if optimizer.startswith("keras"):
            kind = getattr(tf.keras.optimizers.legacy, optimizer.split("_")[1])(0.01)
            kind.iterations = step
            train_op = kind.get_updates(loss, v1.trainable_variables())[0]
        else:
            extra = {"momentum": 0.9} if optimizer == "Momentum" else {}
            train_op = getattr(v1.train, f"{optimizer}Optimizer")(0.01, **extra).minimize(loss, step)
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, *updates))

    return model_fn


def of_keras_model(directory: str) -> Any:
    tf.keras.backend.clear_session()
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((3,), name="x"), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(tf.keras.optimizers.legacy.Adam(0.01), tf.keras.losses.BinaryCrossentropy(from_logits=True))
    return tf.keras.estimator.model_to_estimator(model, model_dir=directory)


ESTIMATORS: dict[str, Callable[[str], Any]] = {
    **{
        kind: lambda d, kind=kind: tf.estimator.Estimator(model_fn_of("v1", kind), d)
        for kind in ("GradientDescent", "Momentum", "Adam", "Adagrad", "Adadelta", "RMSProp", "Ftrl")
    },
    "keras_Adam": lambda d: tf.estimator.Estimator(model_fn_of("keras", "keras_Adam"), d),
    "keras_v1": lambda d: tf.estimator.Estimator(model_fn_of("keras", "Adam"), d),
    "dnn": lambda d: tf.estimator.DNNClassifier([4, 3], COLUMNS, model_dir=d),
    "dnn_v1": lambda d: v1.estimator.DNNClassifier([4, 3], COLUMNS, model_dir=d),
    "linear": lambda d: tf.estimator.LinearClassifier(COLUMNS, model_dir=d),
    "combined": lambda d: tf.estimator.DNNLinearCombinedClassifier(
        model_dir=d, linear_feature_columns=COLUMNS, dnn_feature_columns=COLUMNS, dnn_hidden_units=[4]
    ),
    "of_keras_model": of_keras_model,
}


@pytest.fixture
def model_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / f"estimator_{request.param}", tmp_path / "model"))


class Losses(tf.estimator.SessionRunHook):
    def __init__(self) -> None:
        self.values: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        return tf.estimator.SessionRunArgs("loss")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.values.append(float(run_values.results))


@pytest.mark.slow
@pytest.mark.parametrize(("model_dir", "make"), ESTIMATORS.items(), ids=ESTIMATORS, indirect=["model_dir"])
def test_training_goes_on_with_the_losses_of_tensorflow(
    model_dir: Path, make: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    theirs = {file.name: file.read_bytes() for file in model_dir.glob("model.ckpt-5.*")}
    hook, expected = Losses(), json.loads((model_dir / "losses.json").read_text())
    with caplog.at_level(logging.WARNING, logger="lockstep"):
        make(str(model_dir)).train(input_fn, steps=3, hooks=[hook])
    # The bar is 1e-5 at the first step; the others see the optimizer's state, too.
    np.testing.assert_allclose(hook.values, expected, rtol=1e-5)
    assert not [record for record in caplog.records if "that the model_fn does not" in record.message]
    # TensorFlow's files stay as they are, and what follows lies beside them.
    assert {name: (model_dir / name).read_bytes() for name in theirs} == theirs
    assert checkpoint.latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-8")


@pytest.mark.parametrize("model_dir", ["Adam"], indirect=True)
def test_evaluation_and_variables_are_those_of_tensorflow(model_dir: Path) -> None:
    estimator = ESTIMATORS["Adam"](str(model_dir))
    assert estimator.evaluate(input_fn, steps=4)["global_step"] == 5
    expected = load_arrays(model_dir / "expected.npz")
    assert {name.replace("|", "/") for name in expected} == set(estimator.get_variable_names())
    np.testing.assert_array_equal(estimator.get_variable_value("dense/kernel/Adam_1"), expected["dense|kernel|Adam_1"])


@pytest.mark.parametrize("model_dir", ["keras_Adam"], indirect=True)
def test_warm_starts_read_them(model_dir: Path, tmp_path: Path) -> None:
    settings = tf.estimator.WarmStartSettings(str(model_dir), vars_to_warm_start="dense/.*")
    estimator = tf.estimator.Estimator(
        model_fn_of("keras", "GradientDescent"), str(tmp_path / "new"), warm_start_from=settings
    )
    estimator.train(input_fn, steps=1)
    first = tf.train.load_variable(str(tmp_path / "new" / "model.ckpt-0"), "dense/kernel")
    np.testing.assert_array_equal(first, load_arrays(model_dir / "expected.npz")["dense|kernel"])


@pytest.mark.parametrize("model_dir", ["Momentum"], indirect=True)
def test_another_model_is_refused_and_names_what_is_missing(model_dir: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lacks [a-z0-9_/]*/Adam .*it holds|lacks beta1_power .*it holds"):
        ESTIMATORS["Adam"](str(model_dir)).train(input_fn, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("model_dir", ["Adam"], indirect=True)
def test_what_is_left_over_is_named(model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="lockstep"):
        ESTIMATORS["GradientDescent"](str(model_dir)).train(input_fn, steps=1)
    assert "has variables that the model_fn does not: " in caplog.text
    assert "dense/kernel/Adam_1" in caplog.text


def begin_with(assignment_map: Any, model_dir: Path, directory: Path) -> Any:
    """An Estimator whose layers begin with what TensorFlow saved."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        with v1.variable_scope("mine"):
            hidden = v1.layers.dense(features["x"], 4, activation=tf.nn.tanh, name="hidden")
        logits = v1.layers.dense(hidden, 1)
        loss = v1.losses.sigmoid_cross_entropy(labels, logits)
        train_op = v1.train.AdamOptimizer(0.0).minimize(loss, v1.train.get_or_create_global_step())
        v1.train.init_from_checkpoint(str(model_dir), assignment_map)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return tf.estimator.Estimator(model_fn, str(directory))


@pytest.mark.parametrize("model_dir", ["Adam"], indirect=True)
@pytest.mark.parametrize(
    ("assignment_map", "taken"),
    [
        ({"hidden/": "mine/hidden/"}, ["mine/hidden/kernel", "mine/hidden/bias"]),
        ({"/": "mine/"}, ["mine/hidden/kernel", "mine/hidden/bias"]),
        ({"dense/kernel": "dense/kernel", "hidden/bias": "mine/hidden/bias:0"}, ["dense/kernel", "mine/hidden/bias"]),
        ([("dense/", "dense/")], None),
    ],
    ids=["scope", "root", "names", "slots too"],
)
def test_layers_begin_with_a_checkpoint(
    model_dir: Path, tmp_path: Path, assignment_map: Any, taken: list[str] | None
) -> None:
    estimator = begin_with(assignment_map, model_dir, tmp_path / "new")
    estimator.train(input_fn, steps=1)
    expected = load_arrays(model_dir / "expected.npz")
    # A rate of 0: what training began with is there still. Slots below "dense/" begin with those that were saved.
    for name in taken or ["dense/kernel", "dense/bias"]:
        stored = expected[name.removeprefix("mine/").replace("/", "|")]
        np.testing.assert_array_equal(estimator.get_variable_value(name), stored)
    others = {"dense/bias", "mine/hidden/kernel"} - set(taken or ["dense/bias"])
    for name in others:
        stored = expected[name.removeprefix("mine/").replace("/", "|")]
        assert not np.array_equal(estimator.get_variable_value(name), stored)


@pytest.mark.parametrize("model_dir", ["Adam"], indirect=True)
@pytest.mark.parametrize(
    ("assignment_map", "message"),
    [
        ({"nowhere": "dense/kernel"}, "names variables of the checkpoint. Received: 'nowhere'"),
        ({"dense/kernel": "nowhere"}, "the model_fn has made so far. Received: 'nowhere'"),
        ({"dense/": "nowhere/"}, "the model_fn has made so far. Received: 'nowhere/'"),
        ({"dense": "dense/"}, "A scope begins with a scope"),
        ({"hidden/kernel": "dense/kernel"}, r"of shape \(3, 4\), for dense/kernel, which has \(4, 1\)"),
    ],
)
def test_assignments_that_cannot_be(model_dir: Path, tmp_path: Path, assignment_map: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        begin_with(assignment_map, model_dir, tmp_path / "new").train(input_fn, steps=1)
