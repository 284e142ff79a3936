"""Keras models divided over replicas train as on one device; how often they communicate is as little as can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.cpu.partitioner.divided import assert_equal, compiled, divided
from tests.engine.keras.cases import precision

BATCH, STEPS = 8, 5
Case = tuple[keras.Model, dict[str, Any], Any, Any]


def _features(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(STEPS * BATCH, *shape))


def _ids() -> np.ndarray:
    return np.random.default_rng(2).integers(0, 20, (STEPS * BATCH, 6)).astype("int32")


def _labels(classes: int = 4) -> np.ndarray:
    return np.random.default_rng(3).integers(0, classes, STEPS * BATCH).astype("int32")


def _classifier(*stack: Any, optimizer: Any = "sgd", metrics: Any = ("accuracy",), **more: Any) -> Any:
    settings = {"optimizer": optimizer, "metrics": list(metrics), **more}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.Sequential([*stack, layers.Dense(4)]), {"loss": loss, **settings}


def _mlp() -> Case:
    """L2 regularisation, weights of examples, weighted and other metrics."""
    hidden = layers.Dense(16, activation="tanh", kernel_regularizer="l2")
    model, settings = _classifier(hidden, optimizer="adam", weighted_metrics=["accuracy"])
    weights = np.random.default_rng(4).uniform(0.1, 2, STEPS * BATCH)
    return model, settings, _features(12), (_labels(), weights)


def _clipped() -> Case:
    top = keras.metrics.SparseTopKCategoricalAccuracy(2)
    optimizer = keras.optimizers.AdamW(1e-2, global_clipnorm=0.1)
    return (
        *_classifier(layers.Dense(8, activation="gelu"), optimizer=optimizer, metrics=[top]),
        _features(12),
        _labels(),
    )


def _cnn() -> Case:
    stack = [
        *(layers.Conv2D(4, 3, padding="same", activation="relu"), layers.MaxPooling2D(), layers.DepthwiseConv2D(2)),
        *(layers.AveragePooling2D(2), layers.Flatten()),
    ]
    return *_classifier(*stack, optimizer="adam"), _features(8, 8, 3), _labels()


def _normalised() -> Case:
    """Statistics of the whole batch, and masks that are drawn for it."""
    stack = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Dropout(0.3), layers.GlobalMaxPooling2D()]
    return *_classifier(*stack, layers.GaussianNoise(0.1)), _features(6, 6, 3), _labels()


def _recurrent() -> Case:
    stack = [layers.Embedding(20, 5, mask_zero=True), layers.Bidirectional(layers.LSTM(4, recurrent_dropout=0.2))]
    return *_classifier(*stack, optimizer="rmsprop"), _ids(), _labels()


def _transformer() -> Case:
    inputs = keras.Input((6,), dtype="int32")
    x = layers.Embedding(20, 8, mask_zero=True)(inputs) + layers.Embedding(6, 8)(ops.arange(6))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    outputs = layers.Dense(4)(layers.GlobalAveragePooling1D()(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.Model(inputs, outputs), {"optimizer": "adam", "loss": loss}, _ids(), _labels()


def _contrastive_loss(y_true: Any, y_pred: Any) -> Any:
    """Every example against every other one."""
    similar = ops.matmul(y_pred, ops.transpose(y_pred))
    same = ops.cast(ops.equal(y_true[:, None], y_true[None, :]), y_pred.dtype)
    return ops.mean(ops.logsumexp(similar, axis=1) - ops.mean(same * similar, axis=1))


def _contrastive() -> Case:
    model = keras.Sequential([layers.Dense(8, activation="tanh"), layers.UnitNormalization()])
    return model, {"optimizer": keras.optimizers.SGD(0.05), "loss": _contrastive_loss}, _features(12), _labels()


def _measured() -> Case:
    """Metrics that count at thresholds."""
    metrics = [keras.metrics.AUC(), keras.metrics.Precision(), keras.metrics.Recall()]
    model = keras.Sequential([layers.Dense(1, activation="sigmoid")])
    settings = {"optimizer": "nadam", "loss": "binary_crossentropy", "metrics": metrics}
    return model, settings, _features(12), _labels(2).astype("float64")


def _accumulated() -> Case:
    """Gradients of two steps at once, scaled against underflow: the optimizer takes conditions on state."""
    inner = keras.optimizers.Adam(gradient_accumulation_steps=2, use_ema=True)
    optimizer = keras.optimizers.LossScaleOptimizer(inner)
    return *_classifier(layers.Dense(8, activation="tanh"), optimizer=optimizer), _features(12), _labels()


# How often each adds up values in a step. Statistics are two sums in the forward and two in the backward pass.
CASES: dict[str, tuple[Callable[[], Case], int]] = {
    "mlp": (_mlp, 1),
    "clipped": (_clipped, 1),
    "cnn": (_cnn, 1),
    "normalised": (_normalised, 5),
    "recurrent": (_recurrent, 1),
    "transformer": (_transformer, 1),
    "contrastive": (_contrastive, 2),
    "measured": (_measured, 1),
    "accumulated": (_accumulated, 1),
}


def _state(model: Any) -> Any:
    groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    return [[jax.numpy.array(v.value) for v in group] for group in (*groups, model.metrics_variables)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_models(name: str) -> None:
    make, calls = CASES[name]
    count = 2 + 2 * (len(name) % 2)
    with precision("float64"):
        keras.utils.set_random_seed(5)
        model, settings, x, y = make()
        model.compile(**settings)
        targets = y if isinstance(y, tuple) else (y, None)
        batches = [jax.tree.map(lambda a, s=s: a[s * BATCH : (s + 1) * BATCH], (x, *targets)) for s in range(STEPS)]
        # Builds what is built when data are seen: metrics, for one.
        model.train_on_batch(*batches[0])
        found = divided(model.train_step, _state(model), batches[0], count)
        one, many = jax.jit(model.train_step), compiled(found, batches[0], count)
        expected = divided_state = _state(model)
        for batch in batches:
            expected_logs, expected = one(expected, batch)
            logs, divided_state = many(divided_state, batch)
            assert_equal(logs, expected_logs, 1e-9, "logs")
        assert_equal(divided_state, expected, 1e-9, "state")
        assert found.calls == calls


def test_predictions_come_out_whole() -> None:
    with precision("float64"):
        model = keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dropout(0.5)])
        x = _features(4)[:BATCH]
        model(x)
        state = [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]

        def predict(state: Any, data: Any) -> Any:
            outputs, others = model.stateless_call(*state, data, training=False)
            return outputs, (state[0], others)

        found = divided(predict, state, x, 4)
        assert_equal(compiled(found, x, 4)(state, x), jax.jit(predict)(state, x), 1e-12)
        assert (found.calls, found.gathered) == (0, 0)
