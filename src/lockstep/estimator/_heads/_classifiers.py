"""Heads for classes: two, several, or any number of them for each example."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._text import words
from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._heads import _inputs, _keys
from lockstep.estimator._heads._head import Head
from lockstep.estimator._heads._inputs import WeightColumn
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE, LossHead, sigmoid_cross_entropy
from lockstep.estimator._heads._metrics import (
    AccuracyBaseline,
    HeadMetric,
    check_thresholds,
    curve_metrics,
    mean_metric,
    threshold_metrics,
)


class ClassHead(LossHead):
    """Base of heads for classes; they have words of a vocabulary, or numbers."""

    def __init__(
        self,
        n_classes: int,
        logits_dimension: int,
        weight_column: WeightColumn,
        label_vocabulary: Sequence[str | bytes] | None,
        loss_reduction: object,
        loss_fn: Callable[..., Any] | None,
        name: str | None,
    ) -> None:
        super().__init__(logits_dimension, weight_column, loss_reduction, loss_fn, name)
        self._vocabulary = _inputs.check_vocabulary(label_vocabulary, n_classes)
        # TensorFlow serves classes as text in any case: without a vocabulary as "0", "1" and so on.
        self._names: Sequence[Any] = self._vocabulary or [str(number) for number in range(n_classes)]

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        from lockstep.estimator._export.outputs import ClassificationOutput, PredictOutput

        scores = predictions[_keys.PROBABILITIES]
        # The scores of all classes go with all classes' names, as the Classify signature of TensorFlow Serving has it.
        output = ClassificationOutput(scores=scores, classes=words(self._all_class_ids(scores), self._names))
        return {
            _keys.DEFAULT_SIGNATURE: output,
            _keys.CLASSIFY_SIGNATURE: output,
            _keys.PREDICT_SIGNATURE: PredictOutput(predictions),
        }

    def _encode(self, labels: PyTree) -> jax.Array:
        return _inputs.numbers(labels) if self._vocabulary is None else _inputs.words(labels, self._vocabulary)

    def _all_class_ids(self, logits: jax.Array) -> jax.Array:
        """Returns the numbers of all classes, for each example: int32 (batch, classes)."""
        count = len(self._names)
        return jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), (logits.shape[0], count))

    def _predict_classes(self, logits: jax.Array) -> dict[str, Any]:
        """Returns the most likely class of each example, and all classes, for logits (..., classes)."""
        class_ids, every = jnp.argmax(logits, axis=-1, keepdims=True), self._all_class_ids(logits)
        return {
            _keys.PROBABILITIES: jax.nn.softmax(logits),
            _keys.CLASS_IDS: class_ids,
            _keys.CLASSES: words(class_ids, self._names),
            _keys.ALL_CLASS_IDS: every,
            _keys.ALL_CLASSES: words(every, self._names),
        }


class BinaryClassHead(ClassHead):
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
        super().__init__(2, 1, weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._thresholds = check_thresholds(thresholds)

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any]:
        from lockstep.estimator._export.outputs import RegressionOutput

        # A probability is a number, too: TensorFlow serves it by a third signature.
        regression = RegressionOutput(value=predictions[_keys.LOGISTIC])
        return super().export_outputs(predictions) | {_keys.REGRESS_SIGNATURE: regression}

    def _predict(self, logits: jax.Array) -> dict[str, Any]:
        # Two logits of a softmax, the first of them 0, make the one logit's sigmoid.
        both = jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
        return {_keys.LOGITS: logits, _keys.LOGISTIC: jax.nn.sigmoid(logits)} | self._predict_classes(both)

    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        numbers = _inputs.check_labels(labels, logits, 1, self._encode).astype(jnp.float32)
        return _inputs.or_nan(numbers, (numbers >= 0) & (numbers <= 1), "Labels must be >= 0 and <= n_classes - 1 = 1.")

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        return sigmoid_cross_entropy(labels, logits)

    def _metric_table(self) -> dict[str, HeadMetric]:
        by_class, by_score = (_keys.LABELS, _keys.CLASS_IDS), (_keys.LABELS, _keys.LOGISTIC)
        baseline = HeadMetric(partial(AccuracyBaseline, name=_keys.ACCURACY_BASELINE), (_keys.LABELS,))
        return {
            _keys.ACCURACY: HeadMetric(partial(keras.metrics.Accuracy, name=_keys.ACCURACY), by_class),
            _keys.PRECISION: HeadMetric(partial(keras.metrics.Precision, name=_keys.PRECISION), by_class),
            _keys.RECALL: HeadMetric(partial(keras.metrics.Recall, name=_keys.RECALL), by_class),
            **mean_metric(_keys.PREDICTION_MEAN, _keys.LOGISTIC),
            **mean_metric(_keys.LABEL_MEAN, _keys.LABELS),
            _keys.ACCURACY_BASELINE: baseline,
            **curve_metrics(*by_score),
            **threshold_metrics(self._thresholds, *by_score),
        }

    def _metric_values(self, labels: jax.Array, logits: jax.Array) -> Mapping[Hashable, jax.Array]:
        return {_keys.LABELS: labels, **self.predictions(logits, [_keys.LOGISTIC, _keys.CLASS_IDS])}


class MultiClassHead(ClassHead):
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
        count = _check_class_count(n_classes, 3, "For two classes use BinaryClassHead.")
        super().__init__(count, count, weight_column, label_vocabulary, loss_reduction, loss_fn, name)

    def _predict(self, logits: jax.Array) -> dict[str, Any]:
        return {_keys.LOGITS: logits} | self._predict_classes(logits)

    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        classes = _inputs.check_labels(labels, logits, 1, self._encode)
        if not jnp.issubdtype(classes.dtype, jnp.integer):
            raise ArgumentError(
                f"Labels of classes are integers. Received: {classes.dtype.name}. Cast them in the input_fn."
            )
        return classes

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        # TensorFlow stops at an unknown class on a CPU; a compiled step can only make the loss NaN.
        is_class = (labels >= 0) & (labels < self.logits_dimension)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.where(is_class, labels, 0), axis=-1)
        return _inputs.or_nan(-chosen, is_class, f"Labels must be >= 0 and <= n_classes - 1 = {logits.shape[-1] - 1}.")

    def _metric_table(self) -> dict[str, HeadMetric]:
        accuracy = partial(keras.metrics.Accuracy, name=_keys.ACCURACY)
        return {_keys.ACCURACY: HeadMetric(accuracy, (_keys.LABELS, _keys.CLASS_IDS))}

    def _metric_values(self, labels: jax.Array, logits: jax.Array) -> Mapping[Hashable, jax.Array]:
        return {_keys.LABELS: labels, **self.predictions(logits, [_keys.CLASS_IDS])}


class MultiLabelHead(ClassHead):
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
        count = _check_class_count(n_classes, 2, "For one class use BinaryClassHead.")
        super().__init__(count, count, weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._thresholds = check_thresholds(thresholds)
        self._observed = [self._class_of(observed) for observed in classes_for_class_based_metrics or ()]

    def _class_of(self, observed: Any) -> int:
        # A number counts as one also beside a vocabulary, whose words are text.
        known = (
            range(self.logits_dimension) if self._vocabulary is None or isinstance(observed, int) else self._vocabulary
        )
        if observed not in known:
            raise ArgumentError(
                f"classes_for_class_based_metrics must be classes: {', '.join(map(str, known))}. Received: "
                f"{observed!r}."
            )
        return list(known).index(observed)

    def _predict(self, logits: jax.Array) -> dict[str, Any]:
        return {
            _keys.LOGITS: logits,
            _keys.PROBABILITIES: jax.nn.sigmoid(logits),
            _keys.CLASSES: words(self._all_class_ids(logits), self._names),
        }

    def _labels(self, labels: PyTree, logits: jax.Array) -> jax.Array:
        indicators = _inputs.check_labels(labels, logits, self.logits_dimension, self._encode).astype(jnp.float32)
        return _inputs.or_nan(indicators, (indicators >= 0) & (indicators <= 1), "Labels must be 0 or 1.")

    def _encode(self, labels: PyTree) -> jax.Array:
        if self._vocabulary is None or not _inputs.is_text(labels):
            return _inputs.numbers(labels)
        # one_hot of -1, the value of "", is a row of zeros.
        ids = _inputs.words(labels, self._vocabulary, missing=-1)
        return jnp.max(jax.nn.one_hot(ids, self.logits_dimension), axis=-2)

    def _losses(self, labels: jax.Array, logits: jax.Array) -> jax.Array:
        # The mean over classes is an example's loss, as tf.estimator.MultiLabelHead has it; weights apply to that.
        return jnp.mean(sigmoid_cross_entropy(labels, logits), axis=-1, keepdims=True)

    def _metric_table(self) -> dict[str, HeadMetric]:
        both = (_keys.LABELS, _keys.PROBABILITIES)
        rows = curve_metrics(*both) | threshold_metrics(self._thresholds, *both)
        for number in self._observed:
            word = f"class{number}" if self._vocabulary is None else self._vocabulary[number]
            ending = word.decode(errors="replace") if isinstance(word, bytes) else str(word)
            rows |= mean_metric(f"{_keys.PROBABILITY_MEAN}/{ending}", (_keys.PROBABILITIES, number))
            names = {"auc": f"{_keys.AUC}/{ending}", "precision_recall": f"{_keys.AUC_PR}/{ending}"}
            rows |= curve_metrics(*((key, number) for key in both), **names)
        return rows

    def _metric_values(self, labels: jax.Array, logits: jax.Array) -> Mapping[Hashable, jax.Array]:
        values: dict[Hashable, jax.Array] = {_keys.LABELS: labels, _keys.PROBABILITIES: jax.nn.sigmoid(logits)}
        # A column of each observed class; two dimensions, so that weights of examples broadcast.
        columns = {(key, n): value[..., n : n + 1] for key, value in values.items() for n in self._observed}
        return values | columns


def _check_class_count(n_classes: object, least: int, advice: str) -> int:
    """Checks that a number of classes is an integer from `least` up."""
    array: Any = n_classes
    if hasattr(array, "dtype") and not np.shape(array) and np.issubdtype(array.dtype, np.integer):
        # A tensor of no dimensions, as TensorFlow's heads take.
        n_classes = int(array)
    # bool is an int to Python: n_classes=True would be one class.
    if not isinstance(n_classes, (int, np.integer)) or isinstance(n_classes, bool) or n_classes < least:
        raise ArgumentError(f"n_classes must be an integer from {least} up. Received: {n_classes!r}. {advice}".strip())
    return int(n_classes)


def classifier_head(
    n_classes: int, weight_column: WeightColumn, label_vocabulary: Sequence[str | bytes] | None, loss_reduction: str
) -> Head:
    """Returns the head of a classifier: one logit for two classes, else one for each."""
    # tf.estimator's canned classifiers choose so, too: a softmax of two classes would have twice the weights.
    if _check_class_count(n_classes, 2, "") == 2:
        return BinaryClassHead(weight_column, label_vocabulary=label_vocabulary, loss_reduction=loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
