"""A head for several classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._heads import _classes, _inputs, _keys
from lockstep.estimator._heads._binary import BinaryClassHead
from lockstep.estimator._heads._head import Head, select_keys
from lockstep.estimator._heads._inputs import WeightColumn
from lockstep.estimator._heads._loss_head import LossHead
from lockstep.estimator._heads._metrics import update
from lockstep.estimator._heads._reduction import SUM_OVER_BATCH_SIZE


class MultiClassHead(LossHead):
    """Predicts one of several classes; its loss is the cross entropy.

    Labels are integers from 0 up to but without `n_classes` (others make the loss NaN), or words of `label_vocabulary`.

    Args:
        n_classes: Number of classes, at least 3.
        weight_column: The name of the feature of weights, or a numeric column.
        label_vocabulary: The words that labels are, in the order of the classes.
        loss_reduction: The reduction of the examples' losses.
        loss_fn: A function of labels and logits, maybe features and loss_reduction, that returns losses (batch, 1).
        name: Put behind the names of metrics.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.MultiClassHead.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        loss_fn: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> None:
        count = check_class_count(n_classes, 3, "For two classes use BinaryClassHead.")
        super().__init__(count, weight_column, loss_reduction, loss_fn, name)
        self._vocabulary = _inputs.check_vocabulary(label_vocabulary, count)
        self._names = _classes.names_of(count, self._vocabulary)

    def predictions(self, logits: PyTree, keys: Sequence[str] | None = None) -> dict[Any, Any]:
        scores = _inputs.check_logits(logits, self.logits_dimension)
        every = {_keys.LOGITS: scores} | _classes.predict_classes(scores, self._names)
        return {key: every[key] for key in select_keys(keys, list(every))}

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        return _classes.classification_outputs(predictions, self._names)

    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        classes = _inputs.check_labels(labels, logits, 1, self._encode)
        if not jnp.issubdtype(classes.dtype, jnp.integer):
            raise ArgumentError(
                f"Labels of classes are integers. Received: {classes.dtype.name}. Cast them in the input_fn."
            )
        return classes

    def _encode(self, labels: PyTree) -> jax.Array:
        return _inputs.numbers(labels) if self._vocabulary is None else _inputs.words(labels, self._vocabulary)

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        is_class = (labels >= 0) & (labels < self.logits_dimension)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.where(is_class, labels, 0), axis=-1)
        return _inputs.or_nan(-chosen, is_class)

    def _head_metrics(self) -> dict[str, Any]:
        return {self.key(_keys.ACCURACY): keras.metrics.Accuracy(name=_keys.ACCURACY)}

    def _update_own_metrics(
        self, metrics: Mapping[str, Any], labels: jax.Array, logits: jax.Array, weights: jax.Array | None
    ) -> None:
        class_ids = self.predictions(logits, [_keys.CLASS_IDS])[_keys.CLASS_IDS]
        update(metrics[self.key(_keys.ACCURACY)], labels, class_ids, weights=weights)


def check_class_count(n_classes: object, least: int, advice: str) -> int:
    """Checks a number of classes.

    Raises:
        ArgumentError: If it is no integer from `least` up.
    """
    if not isinstance(n_classes, (int, np.integer)) or isinstance(n_classes, bool) or n_classes < least:
        raise ArgumentError(f"n_classes must be an integer from {least} up. Received: {n_classes!r}. {advice}".strip())
    return int(n_classes)


def classifier_head(
    n_classes: int, weight_column: WeightColumn, label_vocabulary: Sequence[str | bytes] | None, loss_reduction: str
) -> Head:
    """Returns the head of a classifier: one logit for two classes, else one for each."""
    if check_class_count(n_classes, 2, "") == 2:
        return BinaryClassHead(weight_column, label_vocabulary=label_vocabulary, loss_reduction=loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
