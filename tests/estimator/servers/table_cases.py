"""Trains Estimators with tables that lie in ranges of rows on servers, on each task of a job; a module that runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lockstep.compat.tensorflow as tf  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np

import lockstep as ls

# 1.1 MiB of float32, and 1.2 MiB of the weights of a linear model.
ROWS, COLUMNS, BUCKETS = 18_000, 16, 320_000
EXAMPLES, BATCH = 96, 8
METRICS = "metrics.json"


def input_fn() -> Any:
    """Returns 24 batches; some ids are in many of them, and most in one."""
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.3, (EXAMPLES, 6)) * 7, ROWS - 1).astype(np.int64)
    labels = (ids.sum(1) % 3 == 0).astype(np.int32)
    features = {"ids": ids, "id": ids[:, :1] * 17, "x": random.normal(size=(EXAMPLES, 3)).astype(np.float32)}
    return tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(EXAMPLES, seed=1).batch(BATCH).repeat(2)


def _looked_up(features: Any, how: str) -> Any:
    if how == "keras":
        return keras.layers.Embedding(ROWS, COLUMNS)(features["ids"])
    table = tf.compat.v1.get_variable("table", (ROWS, COLUMNS), initializer=keras.initializers.RandomNormal(0, 0.1, 7))
    if how == "twice":
        first, rest = tf.gather(table, features["ids"][:, :1]), tf.nn.embedding_lookup(table, features["ids"][:, 1:])
        return tf.concat([first, rest], axis=1)
    return tf.nn.embedding_lookup(table, features["ids"], max_norm=0.4)


def _custom(how: str, optimize: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        hidden = tf.reduce_mean(_looked_up(features, how), axis=1)
        hidden = keras.layers.Dropout(0.2)(hidden, training=mode == "train")
        logits = keras.layers.Dense(2)(tf.concat([hidden, features["x"]], axis=1))
        loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
        train_op = optimize(loss) if mode == "train" else None
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return lambda config: tf.estimator.Estimator(model_fn, config=config)


def _minimizing(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda loss: make().minimize(loss, tf.compat.v1.train.get_global_step())


def _clipped(loss: Any) -> Any:
    step = tf.compat.v1.train.get_global_step()
    rate = tf.compat.v1.train.exponential_decay(0.9, step, 4, 0.5)
    optimizer = tf.compat.v1.train.MomentumOptimizer(rate, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(list(gradients), 0.3)
    return optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=step)


def _keras_adam(loss: Any) -> Any:
    from lockstep.estimator import train

    return train.minimize(loss, keras.optimizers.Adam(0.02))


def _together() -> Any:
    return tf.compat.v1.train.SyncReplicasOptimizer(tf.compat.v1.train.AdagradOptimizer(0.1), 2)


def _wide_and_deep(config: Any) -> Any:
    ids = tf.feature_column.categorical_column_with_identity("ids", ROWS)
    wide = tf.feature_column.categorical_column_with_identity("id", BUCKETS)
    return tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[wide],
        dnn_feature_columns=[
            tf.feature_column.embedding_column(ids, COLUMNS),
            tf.feature_column.numeric_column("x", (3,)),
        ],
        dnn_hidden_units=[4],
        config=config,
    )


CASES: dict[str, Callable[[Any], Any]] = {
    "Adam": _custom("keras", _minimizing(lambda: tf.compat.v1.train.AdamOptimizer(0.02))),
    "clipped": _custom("twice", _clipped),
    "an optimizer of Keras": _custom("clipped rows", _keras_adam),
    "replicas": _custom("keras", _minimizing(_together)),
    "wide and deep": _wide_and_deep,
}
_COLUMN = "dnn/input_from_feature_columns/input_layer/ids_embedding/embedding_weights"
# What is held by rows.
TABLES = {
    "Adam": {"embedding/embeddings"},
    "clipped": {"table"},
    "an optimizer of Keras": {"table"},
    "replicas": {"embedding/embeddings"},
    "wide and deep": {_COLUMN, "linear/linear_model/id/weights"},
}


def train_case(
    name: str, model_dir: Path, strategy: Any = None, steps: Sequence[int] = (8, 14)
) -> dict[str, np.ndarray]:
    """Trains a case in several calls, each from a checkpoint, and evaluates it; returns what the last one holds."""
    config = tf.estimator.RunConfig(
        str(model_dir), tf_random_seed=3, train_distribute=strategy, save_checkpoints_steps=7
    )
    made = CASES[name](config)
    for step in steps:
        made.train(input_fn, max_steps=step)
    if not config.is_chief:
        return {}
    metrics = {key: float(value) for key, value in made.evaluate(input_fn, steps=3).items()}
    (model_dir / METRICS).write_text(json.dumps(metrics))
    return last_values(model_dir)


def last_values(model_dir: Path) -> dict[str, np.ndarray]:
    """Returns what the last checkpoint of a case holds."""
    reader = ls.checkpoint.load_checkpoint(str(model_dir))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def main() -> None:
    """Trains all cases, or those that are named with commas; servers serve until the chief has ended."""
    folder, mode, parts = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    only, steps = sys.argv[4].split(",") if sys.argv[4:] else CASES, [int(step) for step in sys.argv[5:]] or (8, 14)
    options: dict[str, Any] = {"mode": "sync"} if mode == "sync" else {"staleness": 0}
    partitioner = ls.distribute.experimental.partitioners.FixedShardsPartitioner(parts) if parts else None
    strategy: Any = ls.distribute.ParameterServerStrategy(variable_partitioner=partitioner, **options)
    if ls.cluster_resolver.TFConfigClusterResolver().task_type == "ps":
        strategy._servers.job.serve_until_end()
        return
    for name in only:
        # A mode in which updates may miss others is not for synchronous replicas.
        if mode == "sync" or name != "replicas":
            train_case(name, folder / name, strategy, steps)


if __name__ == "__main__":
    main()
