"""Estimators that train alike on one device and with parameter servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import optax

import lockstep as ls
from lockstep import estimator
from lockstep.estimator import train

ROWS, BATCH = 96, 16
WORDS = ("red", "green", "blue")


def input_fn() -> ls.data.Dataset:
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 4)).astype(np.float32)
    word = np.array([WORDS[i].encode() for i in random.integers(0, 3, ROWS)])
    labels = ((x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0.3)).astype(np.int32)
    features = {"x": x, "word": word}
    return ls.data.Dataset.from_tensor_slices((features, labels)).shuffle(ROWS, seed=1).repeat(2).batch(BATCH)


def _custom(optimize: Callable[[Any], Any], regularized: bool = False) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        hidden = keras.layers.Dense(6, activation="tanh")(features["x"])
        if regularized:
            hidden = keras.layers.BatchNormalization()(hidden, training=mode == "train")
            hidden = keras.layers.Dropout(0.3)(hidden, training=mode == "train")
        logits = keras.layers.Dense(3)(hidden)
        loss = estimator.losses.sparse_softmax_cross_entropy(labels, logits)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=optimize(loss) if mode == "train" else None)

    return model_fn


def _clipped(loss: Any) -> Any:
    optimizer = train.GradientDescentOptimizer(0.5)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = train.clip_by_global_norm(list(gradients), 0.1)
    return optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=train.get_global_step())


def _decayed(loss: Any) -> Any:
    rate = train.exponential_decay(0.5, train.get_global_step(), 4, 0.5)
    return train.MomentumOptimizer(rate, 0.9).minimize(loss, train.get_global_step())


def _columns() -> list[Any]:
    word = estimator.feature_column.categorical_column_with_vocabulary_list("word", list(WORDS))
    return [estimator.feature_column.numeric_column("x", (4,)), estimator.feature_column.embedding_column(word, 3)]


def _wide_and_deep(config: Any) -> Any:
    word = estimator.feature_column.categorical_column_with_vocabulary_list("word", list(WORDS))
    return estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[word],
        dnn_feature_columns=_columns(),
        dnn_hidden_units=[5],
        n_classes=3,
        config=config,
    )


def _estimator_of(model_fn: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda config: estimator.Estimator(model_fn, config=config)


CASES: dict[str, Callable[[Any], Any]] = {
    "TensorFlow 1's Adam": _estimator_of(_custom(lambda loss: train.AdamOptimizer(0.02).minimize(loss))),
    "a schedule of Keras": _estimator_of(
        _custom(
            lambda loss: train.minimize(
                loss, keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.5, 10), 0.9, nesterov=True)
            )
        )
    ),
    "averages and masks": _estimator_of(_custom(lambda loss: train.minimize(loss, keras.optimizers.AdamW(0.02)), True)),
    "a rate of the step": _estimator_of(_custom(_decayed)),
    "clipped gradients": _estimator_of(_custom(_clipped)),
    "optax": _estimator_of(_custom(lambda loss: train.minimize(loss, optax.adam(0.02)))),
    "wide and deep": _wide_and_deep,
}


def train_case(name: str, model_dir: Path, strategy: Any, max_steps: int | None = None) -> dict[str, np.ndarray]:
    """Trains a case, and returns what its last checkpoint holds."""
    config = estimator.RunConfig(str(model_dir), tf_random_seed=3, train_distribute=strategy, save_checkpoints_steps=5)
    made = CASES[name](config)
    made.train(input_fn, max_steps=max_steps)
    if strategy is not None and not strategy.is_chief:
        return {}
    reader = ls.checkpoint.load_checkpoint(str(model_dir))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
