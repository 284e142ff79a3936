"""Trains models with tf.compat.v1.train.SyncReplicasOptimizer, on each task of a job or alone; a module that runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.compat.tensorflow as tf  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np

import lockstep as ls

TOGETHER = 3
# 96 rows are 12 batches; the others a half of one, so that batches of an update differ in size. Of 3 passes over 13
# batches are 13 updates of 3 batches.
ROWS, BATCH, UPDATES = 100, 8, 13


def make_input(rows: int = ROWS) -> Any:
    """Returns the data of an input_fn."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 4)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(({"x": x}, (x[:, 0] > 0.2).astype(np.int32)))
    return data.shuffle(rows, seed=1).batch(BATCH).repeat(3)


def _wrapped(optimizer: Any, together: int) -> Any:
    """Returns an optimizer for so many batches; itself for 0."""
    if not together:
        return optimizer
    return tf.compat.v1.train.SyncReplicasOptimizer(optimizer, together, total_num_replicas=together + 1)


def _model(features: Any, mode: str, is_random: bool) -> Any:
    hidden = keras.layers.Dense(5, activation="tanh")(features["x"])
    if is_random:
        hidden = keras.layers.BatchNormalization()(hidden, training=mode == "train")
        hidden = keras.layers.Dropout(0.3)(hidden, training=mode == "train")
    return keras.layers.Dense(2)(hidden)


def _spec(mode: str, loss: Any, optimizer: Any, train_op: Any) -> Any:
    if not hasattr(optimizer, "make_session_run_hook"):
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
    hook = optimizer.make_session_run_hook(ls.cluster_resolver.TFConfigClusterResolver().task_type != "worker")
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])


def _minimizing(make: Callable[[], Any], is_random: bool = False) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, _model(features, mode, is_random))
        optimizer = _wrapped(make(), params["together"])
        train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
        return _spec(mode, loss, optimizer, train_op)

    return model_fn


def _clipping(features: Any, labels: Any, mode: str, params: Any) -> Any:
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, _model(features, mode, False))
    rate = tf.compat.v1.train.exponential_decay(0.8, tf.compat.v1.train.get_global_step(), 4, 0.5)
    optimizer = _wrapped(tf.compat.v1.train.MomentumOptimizer(rate, 0.9), params["together"])
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(list(gradients), 0.1)
    pairs = zip(clipped, variables, strict=True)
    train_op = optimizer.apply_gradients(pairs, global_step=tf.compat.v1.train.get_or_create_global_step())
    return _spec(mode, loss, optimizer, train_op)


def _canned(config: Any, together: int) -> Any:
    optimizer = _wrapped(tf.compat.v1.train.AdagradOptimizer(0.1), together)
    columns = [tf.feature_column.numeric_column("x", (4,))]
    return tf.compat.v1.estimator.DNNClassifier([4], columns, optimizer=optimizer, config=config)


def _custom(model_fn: Callable[..., Any]) -> Callable[[Any, int], Any]:
    return lambda config, together: tf.estimator.Estimator(model_fn, config=config, params={"together": together})


CASES: dict[str, Callable[[Any, int], Any]] = {
    "Adam": _custom(_minimizing(lambda: tf.compat.v1.train.AdamOptimizer(0.05))),
    "averages and masks": _custom(_minimizing(lambda: tf.compat.v1.train.GradientDescentOptimizer(0.3), True)),
    "clipped by each": _custom(_clipping),
    "canned": _canned,
}


def train_case(
    name: str, model_dir: Path, strategy: Any = None, together: int = TOGETHER, rows: int = ROWS
) -> dict[str, np.ndarray]:
    """Trains a case, and returns what its last checkpoint holds."""
    config = tf.estimator.RunConfig(str(model_dir), tf_random_seed=3, train_distribute=strategy)
    CASES[name](config, together).train(lambda: make_input(rows))
    return last_values(model_dir)


def last_values(model_dir: Path) -> dict[str, np.ndarray]:
    """Returns what the last checkpoint of a case holds."""
    reader = ls.checkpoint.load_checkpoint(str(model_dir))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def main() -> None:
    """Trains all cases; servers serve until the chief has ended."""
    if ls.cluster_resolver.TFConfigClusterResolver().task_type == "ps":
        strategy: Any = ls.distribute.ParameterServerStrategy()
        strategy._servers.job.serve_until_end()
        return
    for name in sys.argv[2:]:
        train_case(name, Path(sys.argv[1]) / name)


if __name__ == "__main__":
    main()
