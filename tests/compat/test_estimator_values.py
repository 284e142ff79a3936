"""What an Estimator reports and lets hooks see. The literals are TensorFlow 2.15's."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

v1 = tf.compat.v1
X, Y = np.array([1, 2, 3, 4], np.float32), np.array([1, 2, 3, 5], np.float32)


def batches() -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(2).repeat(2)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Multiplies by a weight; its metrics are pairs that it has put together itself."""
    v1.add_to_collection("mine", labels)
    weight = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    predictions = features["x"] * weight
    loss = tf.reduce_mean((predictions - labels) ** 2)
    v1.summary.scalar("largest", tf.reduce_max(labels))
    squared = v1.metrics.mean_squared_error(labels, predictions)
    total = v1.get_variable(
        "total",
        [],
        trainable=False,
        collections=[v1.GraphKeys.LOCAL_VARIABLES],
        initializer=v1.zeros_initializer(),
        aggregation=tf.VariableAggregation.SUM,
    )
    # Written before the update: TensorFlow reads it at the end all the same.
    value = total * 1.0
    update = total.assign_add(tf.reduce_sum(labels))
    metrics = {
        "rmse": (tf.sqrt(squared[0]), squared[1]),
        "total": (value, tf.group(update)),
        "constant": (tf.constant(3.0), tf.no_op()),
        "both": (tf.stack([squared[0], value]), tf.no_op()),
    }
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, predictions, loss, train_op, metrics)


class Hook(tf.estimator.SessionRunHook):
    """Looks things up in begin, as hooks of TensorFlow do, and asks for them in each step."""

    def begin(self) -> None:
        self.step = v1.train.get_global_step()
        self.names = [v.name for v in v1.trainable_variables()]
        (self.labels,) = v1.get_collection("mine")
        self.summaries = v1.summary.merge_all()
        self.seen: list[Any] = []

    def before_run(self, run_context: Any) -> Any:
        return tf.estimator.SessionRunArgs(
            {"step": self.step, "named": "global_step:0", "labels": self.labels, "summaries": self.summaries}
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        found = run_values.results
        now = run_context.session.run(self.step)
        shown = [float(op.value) for op in found["summaries"]]
        self.seen.append((int(found["step"]), int(found["named"]), int(now), found["labels"].tolist(), shown))


def test_hooks_find_the_model_fn_and_read_the_step_before_it_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook, config = Hook(), tf.estimator.RunConfig(log_step_count_steps=2)
    with caplog.at_level(logging.INFO, "lockstep"):
        tf.estimator.Estimator(model_fn, str(tmp_path), config).train(batches, hooks=[hook])
    assert hook.names == ["w:0"]
    assert hook.seen[0] == (0, 0, 1, [1, 2], [2])
    assert hook.seen[3] == (3, 3, 4, [3, 5], [5])
    lines = [m.split(" (")[0] for m in caplog.messages if m.startswith("loss = ")]
    assert lines == ["loss = 2.5, step = 0", "loss = 3.3062506, step = 2"]


def test_a_hook_cannot_compute_in_begin(tmp_path: Path) -> None:
    class Computes(tf.estimator.SessionRunHook):
        def begin(self) -> None:
            self.doubled = v1.get_collection("mine")[0] * 2

    with pytest.raises(tf.errors.InvalidArgumentError, match="Compute the value in the model_fn"):
        tf.estimator.Estimator(model_fn, str(tmp_path)).train(batches, hooks=[Computes()])


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_values_are_read_after_the_last_update(tmp_path: Path, replicas: int) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]) if replicas == 2 else None
    config = tf.estimator.RunConfig(eval_distribute=strategy)
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path), config)
    estimator.train(batches, steps=1)
    # Of one weight of 0.5: the errors are 0.5, 1, 1.5 and 3.
    found = estimator.evaluate(batches)
    weight = estimator.get_variable_value("w")
    squared = np.mean((X * weight - Y) ** 2)
    assert found["rmse"] == pytest.approx(np.sqrt(squared), rel=1e-5)
    # Each evaluation begins anew: the variable is local.
    assert estimator.evaluate(batches)["total"] == found["total"] == 22
    assert found["constant"] == 3
    np.testing.assert_allclose(found["both"], [squared, 22], rtol=1e-5)
    assert "total" not in estimator.get_variable_names()


def test_a_value_of_the_batch_is_said_to_be_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def of_batch(features: Any, labels: Any, mode: str) -> Any:
        loss = tf.reduce_sum(features["x"]) * tf.Variable(1.0)
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"odd": (tf.reduce_sum(labels), tf.no_op())})

    tf.estimator.Estimator(of_batch, str(tmp_path)).evaluate(batches)
    assert "that of the last batch" in caplog.text


def test_evaluations_write_one_file_with_arrays(tmp_path: Path) -> None:
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.evaluate(batches)
    estimator.evaluate(batches)
    (name,) = os.listdir(estimator.eval_dir())
    events = list(v1.train.summary_iterator(os.path.join(estimator.eval_dir(), name)))
    values = [v for event in events for v in event.summary.value if v.tag == "both"]
    assert [np.frombuffer(v.tensor.tensor_content, np.float32)[1] for v in values] == [22, 22]


def test_counts_of_replicas_need_an_aggregation(tmp_path: Path) -> None:
    def counting(features: Any, labels: Any, mode: str) -> Any:
        count = v1.get_local_variable("count", [], initializer=v1.zeros_initializer())
        metrics = {"count": (count * 1.0, count.assign_add(1.0))}
        return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_sum(features["x"]), eval_metric_ops=metrics)

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    estimator = tf.estimator.Estimator(counting, str(tmp_path), tf.estimator.RunConfig(eval_distribute=strategy))
    with pytest.raises(tf.errors.InvalidArgumentError, match="You must specify an aggregation"):
        estimator.evaluate(batches)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["train", "evaluate"])
def test_labels_out_of_range_are_said(tmp_path: Path, call: str) -> None:
    columns = [tf.feature_column.numeric_column("x")]
    estimator = tf.estimator.LinearClassifier(columns, str(tmp_path), n_classes=3)
    wrong = lambda: tf.data.Dataset.from_tensor_slices(({"x": X}, np.array([0, 1, 2, 3]))).batch(2)  # noqa: E731
    with pytest.raises(tf.errors.InvalidArgumentError, match="Labels must be >= 0 and <= n_classes - 1 = 2"):
        getattr(estimator, call)(wrong)


def test_assertions_are_looked_at_after_the_step(tmp_path: Path) -> None:
    def asserting(features: Any, labels: Any, mode: str) -> Any:
        with tf.control_dependencies([v1.assert_less(labels, 4.0, message="too large")]):
            loss = tf.reduce_sum(features["x"]) * tf.Variable(1.0)
        v1.assert_positive(labels)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.no_op())

    estimator = tf.estimator.Estimator(asserting, str(tmp_path))
    estimator.train(batches, steps=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"too large\. Elements must be less"):
        estimator.train(batches, steps=2)


@pytest.mark.parametrize(
    ("train_op", "step"),
    [
        (lambda: tf.constant(1), 2),
        (lambda: tf.no_op(), 2),
        (lambda: v1.assign_add(v1.train.get_global_step(), 1), 2),
        (lambda: tf.group(v1.assign_add(v1.train.get_global_step(), 3), tf.no_op()), 3),
        (lambda: tf.Variable(0.0, name="v").assign_add(1.0), 2),
    ],
)
def test_any_operation_is_a_train_op(tmp_path: Path, train_op: Any, step: int) -> None:
    def fixed(features: Any, labels: Any, mode: str) -> Any:
        return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_sum(features["x"]), train_op=train_op())

    config = tf.estimator.RunConfig(train_distribute=tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    for settings in (None, config) if step == 3 else (None,):
        directory = tmp_path / str(settings is None)
        estimator = tf.estimator.Estimator(fixed, str(directory), settings)
        # Half a step more is a whole one.
        assert estimator.train(batches, steps=1.5).get_variable_value("global_step") == step
