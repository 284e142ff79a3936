"""A program in the manner of TensorFlow 1's samples, for clusters with chief, worker, ps and evaluator; a module.

TF_CONFIG says which task it is. `--sync_replicas` wraps the optimizer, as programs did that trained synchronously.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import lockstep.compat.tensorflow as tf  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import numpy as np

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
VOCABULARY = ["bachelor", "doctorate", "master", "school"]
_EXAMPLES, _BATCH = 400, 20


def make_input_fn(is_training: bool) -> Any:
    """Returns the input_fn of a table of ages, degrees and hours, of which the label is a sum."""

    def input_fn() -> Any:
        random = np.random.default_rng(0 if is_training else 1)
        degree = random.integers(0, 4, _EXAMPLES)
        age, hours = (random.uniform(-1, 1, _EXAMPLES).astype(np.float32) for _ in range(2))
        label = (age + hours + np.array([0.3, 0.9, 0.5, -0.8])[degree] > 0.2).astype(np.int32)
        features = {"age": age, "hours": hours, "degree": np.array(VOCABULARY)[degree]}
        dataset = tf.data.Dataset.from_tensor_slices((features, label))
        if is_training:
            dataset = dataset.shuffle(_EXAMPLES, seed=5).repeat()
        return dataset.batch(_BATCH).prefetch(1)

    return input_fn


def _columns() -> list[Any]:
    degree = tf.feature_column.categorical_column_with_vocabulary_list("degree", VOCABULARY)
    numbers = [tf.feature_column.numeric_column(name) for name in ("age", "hours")]
    return [*numbers, tf.feature_column.embedding_column(degree, 2)]


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any], config: Any) -> Any:
    """A network whose updates may wait for the gradients of several tasks."""
    net = tf.compat.v1.feature_column.input_layer(features, _columns())
    for units in params["hidden_units"]:
        net = tf.compat.v1.layers.dense(net, units, activation=tf.nn.tanh)
    logits = tf.compat.v1.layers.dense(net, 2)
    predicted = tf.argmax(logits, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"classes": tf.estimator.export.PredictOutput({"class": predicted})}
        return tf.estimator.EstimatorSpec(mode, predictions={"class": predicted}, export_outputs=outputs)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.compat.v1.metrics.accuracy(labels=labels, predictions=predicted)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    tf.compat.v1.summary.scalar(
        "training_accuracy", tf.reduce_mean(tf.cast(tf.equal(predicted, tf.cast(labels, predicted.dtype)), tf.float32))
    )
    global_step = tf.compat.v1.train.get_or_create_global_step()
    rate = tf.compat.v1.train.exponential_decay(0.05, global_step, 20, 0.7, staircase=True)
    optimizer, hooks = tf.compat.v1.train.AdamOptimizer(rate), []
    if params["sync_replicas"]:
        optimizer = tf.compat.v1.train.SyncReplicasOptimizer(
            optimizer,
            replicas_to_aggregate=params["sync_replicas"],
            total_num_replicas=max(1, config.num_worker_replicas),
            use_locking=True,
        )
        hooks.append(optimizer.make_session_run_hook(config.is_chief, num_tokens=params["sync_replicas"]))
    hooks.append(tf.estimator.LoggingTensorHook({"loss": loss, "rate": rate}, every_n_iter=20))
    with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=global_step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)


def serving_input_fn() -> Any:
    """Returns what an exported model takes."""
    features = {
        "age": tf.compat.v1.placeholder(tf.float32, (None,)),
        "hours": tf.compat.v1.placeholder(tf.float32, (None,)),
        "degree": tf.compat.v1.placeholder(tf.string, (None,)),
    }
    return tf.estimator.export.ServingInputReceiver(features, features)


def main() -> None:
    """Trains and evaluates, as the task that TF_CONFIG names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--sync_replicas", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    flags = parser.parse_args()
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "alone", "index": 0})
    tf.compat.v1.logging.info("Running as %s %d", task["type"], task["index"])
    config = tf.estimator.RunConfig(
        model_dir=flags.model_dir,
        tf_random_seed=19,
        save_checkpoints_steps=20,
        save_summary_steps=10,
        keep_checkpoint_max=3,
        log_step_count_steps=20,
        session_config=tf.compat.v1.ConfigProto(
            allow_soft_placement=True, device_filters=["/job:ps", f"/job:{task['type']}/task:{task['index']}"]
        ),
    )
    params = {"hidden_units": [8, 4], "sync_replicas": flags.sync_replicas}
    estimator = tf.estimator.Estimator(model_fn=model_fn, config=config, params=params)
    train_spec = tf.estimator.TrainSpec(input_fn=make_input_fn(True), max_steps=flags.steps)
    exporter = tf.estimator.FinalExporter("serving", serving_input_fn)
    eval_spec = tf.estimator.EvalSpec(
        input_fn=make_input_fn(False), steps=None, exporters=[exporter], start_delay_secs=0, throttle_secs=1
    )
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)


if __name__ == "__main__":
    main()
