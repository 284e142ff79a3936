"""A head for examples that belong to any number of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._text import words
from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._heads import _classes, _inputs, _keys
from lockstep.estimator._heads._head import select_keys
from lockstep.estimator._heads._inputs import WeightColumn
from lockstep.estimator._heads._loss_head import LossHead, metric_name, sigmoid_cross_entropy
from lockstep.estimator._heads._metrics import update
from lockstep.estimator._heads._multi_class import check_class_count
from lockstep.estimator._heads._reduction import SUM_OVER_BATCH_SIZE
from lockstep.estimator._heads._thresholds import check_thresholds, curves, threshold_metrics


class MultiLabelHead(LossHead):
    """Predicts for each class whether an example belongs to it; its loss is the mean of their cross entropies.

    Labels are 0 and 1 for each class, (batch, n_classes) (others make the loss NaN); or words of `label_vocabulary`,
    (batch, n), where "" stands for no word.

    Args:
        n_classes: Number of classes, at least 2.
        weight_column: The name of the feature of weights, or a numeric column.
        thresholds: Between 0 and 1: at each there are further metrics.
        label_vocabulary: The words that labels are, in the order of the classes.
        loss_reduction: The reduction of the examples' losses.
        loss_fn: A function of labels and logits, maybe features and loss_reduction, that returns losses (batch, 1).
        classes_for_class_based_metrics: Numbers or words of classes with metrics of their own.
        name: Put behind the names of metrics.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.MultiLabelHead.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn | None = None,
        thresholds: Iterable[float] | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        loss_fn: Callable[..., Any] | None = None,
        classes_for_class_based_metrics: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> None:
        count = check_class_count(n_classes, 2, "For one class use BinaryClassHead.")
        super().__init__(count, weight_column, loss_reduction, loss_fn, name)
        self._thresholds = check_thresholds(thresholds)
        self._vocabulary = _inputs.check_vocabulary(label_vocabulary, count)
        self._names = _classes.names_of(count, self._vocabulary)
        self._observed = [self._class_of(given) for given in classes_for_class_based_metrics or ()]

    def _class_of(self, given: Any) -> int:
        known = range(self.logits_dimension) if self._vocabulary is None or isinstance(given, int) else self._vocabulary
        if given not in known:
            raise ArgumentError(
                f"classes_for_class_based_metrics must be classes: {', '.join(map(str, known))}. Received: {given!r}."
            )
        return list(known).index(given)

    def predictions(self, logits: PyTree, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        scores = _inputs.check_logits(logits, self.logits_dimension)
        every = {
            _keys.LOGITS: scores,
            _keys.PROBABILITIES: jax.nn.sigmoid(scores),
            _keys.CLASSES: words(_classes.all_class_ids(scores, self.logits_dimension), self._names),
        }
        return {key: every[key] for key in select_keys(keys, list(every))}

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        return _classes.classification_outputs(predictions, self._names)

    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        indicators = _inputs.check_labels(labels, logits, self.logits_dimension, self._encode).astype(jnp.float32)
        return _inputs.or_nan(indicators, (indicators >= 0) & (indicators <= 1))

    def _encode(self, labels: PyTree) -> jax.Array:
        if self._vocabulary is None or not _inputs.is_text(labels):
            return _inputs.numbers(labels)
        ids = _inputs.words(labels, self._vocabulary, missing=-1)
        return jnp.max(jax.nn.one_hot(ids, self.logits_dimension), axis=-2)

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        return jnp.mean(sigmoid_cross_entropy(labels, logits), axis=-1, keepdims=True)

    def _head_metrics(self) -> dict[str, Any]:
        metrics = curves() | threshold_metrics(self._thresholds)
        for number in self._observed:
            mean, auc, precision_recall = self._class_keys(number)
            metrics |= {mean: keras.metrics.Mean(name=metric_name(mean))} | curves(auc, precision_recall)
        return {self.key(name): metric for name, metric in metrics.items()}

    def _class_keys(self, number: int) -> list[str]:
        ending = f"class{number}" if self._vocabulary is None else _text(self._vocabulary[number])
        return [f"{name}/{ending}" for name in (_keys.PROBABILITY_MEAN, _keys.AUC, _keys.AUC_PR)]

    def _update_own_metrics(
        self, metrics: Mapping[str, Any], labels: jax.Array, logits: jax.Array, weights: jax.Array | None
    ) -> None:
        probabilities = jax.nn.sigmoid(logits)
        by_threshold = (_keys.ACCURACY, _keys.PRECISION, _keys.RECALL)
        at = [_keys.at_threshold(name, threshold) for threshold in self._thresholds for name in by_threshold]
        for name in (_keys.AUC, _keys.AUC_PR, *at):
            update(metrics[self.key(name)], labels, probabilities, weights=weights)
        for number in self._observed:
            mean, *areas = self._class_keys(number)
            of_class = slice(number, number + 1)
            update(metrics[self.key(mean)], probabilities[..., of_class], weights=weights)
            for name in areas:
                update(metrics[self.key(name)], labels[..., of_class], probabilities[..., of_class], weights=weights)


def _text(word: object) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
