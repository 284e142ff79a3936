"""A head for two classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._types import PyTree
from lockstep.estimator._heads import _classes, _inputs, _keys
from lockstep.estimator._heads._head import select_keys
from lockstep.estimator._heads._inputs import WeightColumn
from lockstep.estimator._heads._loss_head import LossHead, metric_name, sigmoid_cross_entropy
from lockstep.estimator._heads._metrics import AccuracyBaseline, update
from lockstep.estimator._heads._reduction import SUM_OVER_BATCH_SIZE
from lockstep.estimator._heads._thresholds import check_thresholds, curves, threshold_metrics


class BinaryClassHead(LossHead):
    """Predicts one of two classes from one logit; its loss is the cross entropy.

    Labels are numbers from 0 to 1 (others make the loss NaN), or words of `label_vocabulary`.

    Args:
        weight_column: The name of the feature of weights, or a numeric column.
        thresholds: Between 0 and 1: at each there are further metrics.
        label_vocabulary: The two words that labels are.
        loss_reduction: The reduction of the examples' losses.
        loss_fn: A function of labels and logits, maybe features and loss_reduction, that returns losses (batch, 1).
        name: Put behind the names of metrics.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.BinaryClassHead.
    """

    def __init__(
        self,
        weight_column: WeightColumn | None = None,
        thresholds: Iterable[float] | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        loss_fn: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(1, weight_column, loss_reduction, loss_fn, name)
        self._thresholds = check_thresholds(thresholds)
        self._vocabulary = _inputs.check_vocabulary(label_vocabulary, 2)
        self._names = _classes.names_of(2, self._vocabulary)

    def predictions(self, logits: PyTree, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        scores = _inputs.check_logits(logits, 1)
        both = jnp.concatenate([jnp.zeros_like(scores), scores], axis=-1)
        every = {_keys.LOGITS: scores, _keys.LOGISTIC: jax.nn.sigmoid(scores)} | _classes.predict_classes(
            both, self._names
        )
        return {key: every[key] for key in select_keys(keys, list(every))}

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        from lockstep.estimator._export.outputs import RegressionOutput

        regression = RegressionOutput(value=predictions[_keys.LOGISTIC])
        outputs = _classes.classification_outputs(predictions, self._names)
        return outputs | {_keys.REGRESS_SIGNATURE: regression}

    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        numbers = _inputs.check_labels(labels, logits, 1, self._encode).astype(jnp.float32)
        return _inputs.or_nan(numbers, (numbers >= 0) & (numbers <= 1))

    def _encode(self, labels: PyTree) -> jax.Array:
        return _inputs.numbers(labels) if self._vocabulary is None else _inputs.words(labels, self._vocabulary)

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        return sigmoid_cross_entropy(labels, logits)

    def _head_metrics(self) -> dict[str, Any]:
        metrics: dict[str, Any] = {
            _keys.ACCURACY: keras.metrics.Accuracy(name=_keys.ACCURACY),
            _keys.PRECISION: keras.metrics.Precision(name=_keys.PRECISION),
            _keys.RECALL: keras.metrics.Recall(name=_keys.RECALL),
            _keys.PREDICTION_MEAN: keras.metrics.Mean(name=metric_name(_keys.PREDICTION_MEAN)),
            _keys.LABEL_MEAN: keras.metrics.Mean(name=metric_name(_keys.LABEL_MEAN)),
            _keys.ACCURACY_BASELINE: AccuracyBaseline(name=_keys.ACCURACY_BASELINE),
        }
        metrics |= curves() | threshold_metrics(self._thresholds)
        return {self.key(name): metric for name, metric in metrics.items()}

    def _update_own_metrics(
        self, metrics: Mapping[str, Any], labels: jax.Array, logits: jax.Array, weights: jax.Array | None
    ) -> None:
        predictions = self.predictions(logits)
        logistic, class_ids = predictions[_keys.LOGISTIC], predictions[_keys.CLASS_IDS]
        by_class = (_keys.ACCURACY, _keys.PRECISION, _keys.RECALL)
        for name in by_class:
            update(metrics[self.key(name)], labels, class_ids, weights=weights)
        update(metrics[self.key(_keys.PREDICTION_MEAN)], logistic, weights=weights)
        for name in (_keys.LABEL_MEAN, _keys.ACCURACY_BASELINE):
            update(metrics[self.key(name)], labels, weights=weights)
        by_threshold = [_keys.at_threshold(name, at) for at in self._thresholds for name in by_class]
        for name in (_keys.AUC, _keys.AUC_PR, *by_threshold):
            update(metrics[self.key(name)], labels, logistic, weights=weights)
