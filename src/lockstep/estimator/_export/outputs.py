"""Outputs of exported models.

Source: tf.estimator.export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._text import Text, Words, is_text
from lockstep._types import PyTree, Tensor
from lockstep.errors import ArgumentError
from lockstep.saved_model import (
    CLASSIFY_INPUTS,
    CLASSIFY_METHOD_NAME,
    CLASSIFY_OUTPUT_CLASSES,
    CLASSIFY_OUTPUT_SCORES,
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    PREDICT_METHOD_NAME,
    REGRESS_INPUTS,
    REGRESS_METHOD_NAME,
    REGRESS_OUTPUTS,
)

_SEPARATOR = "/"


class ExportOutput:
    """The output of a signature; see its subclasses.

    Attributes:
        method_name: TensorFlow's name for the kind of signature.
        input_name: The only input's name if it is text; `None` for its own name.

    Source: tf.estimator.export.ExportOutput.
    """

    method_name = PREDICT_METHOD_NAME
    input_name: str | None = None

    def tensors(self) -> dict[str, Any]:
        """Returns the outputs of the signature, by name."""
        raise ArgumentError(
            "An ExportOutput is a PredictOutput, ClassificationOutput or RegressionOutput. Received: "
            f"{type(self).__name__}. Derive from one of them."
        )


class PredictOutput(ExportOutput):
    """Outputs of any kind.

    Args:
        outputs: A tensor, which is called "output", or a dict of tensors. A name may be a tuple of several.

    Raises:
        ArgumentError: If one is no tensor, or has no name.

    Source: tf.estimator.export.PredictOutput.
    """

    def __init__(self, outputs: PyTree) -> None:
        self._outputs = _name_tensors(outputs, "output", "Prediction")

    @property
    def outputs(self) -> dict[str, Any]:
        """Returns the outputs by name."""
        return self._outputs

    def tensors(self) -> dict[str, Any]:
        """Returns the outputs of the signature, by name."""
        return self._outputs


class ClassificationOutput(ExportOutput):
    """Scores of classes, or the classes, or both.

    Args:
        scores: Real numbers (batch, classes).
        classes: Text, (batch, classes): a label for each score, or alone the best classes in order.

    Raises:
        ArgumentError: If both are missing, or one is of another type.

    Source: tf.estimator.export.ClassificationOutput.
    """

    method_name = CLASSIFY_METHOD_NAME
    input_name = CLASSIFY_INPUTS

    def __init__(self, scores: Tensor | None = None, classes: Tensor | None = None) -> None:
        if scores is not None and not _is_real(scores):
            raise ArgumentError(f"Classification scores must be a float32 Tensor; got {scores!r}. Cast them.")
        if classes is not None and not (isinstance(classes, Words) or is_text(classes)):
            raise ArgumentError(
                f"Classification classes must be a string Tensor; got {classes!r}. Make text of "
                "integers by words(ids, vocabulary)."
            )
        if scores is None and classes is None:
            raise ArgumentError(
                "A ClassificationOutput has scores, classes or both. Received: None for both. Give one."
            )
        self._scores = scores
        self._classes = classes

    @property
    def scores(self) -> Any:
        """Returns the scores, or `None`."""
        return self._scores

    @property
    def classes(self) -> Any:
        """Returns the classes, or `None`."""
        return self._classes

    def tensors(self) -> dict[str, Any]:
        """Returns the outputs of the signature, by name."""
        both = {CLASSIFY_OUTPUT_CLASSES: self._classes, CLASSIFY_OUTPUT_SCORES: self._scores}
        return {name: value for name, value in both.items() if value is not None}


class RegressionOutput(ExportOutput):
    """Real numbers.

    Args:
        value: The numbers.

    Raises:
        ArgumentError: If it is of another type.

    Source: tf.estimator.export.RegressionOutput.
    """

    method_name = REGRESS_METHOD_NAME
    input_name = REGRESS_INPUTS

    def __init__(self, value: Tensor) -> None:
        if not _is_real(value):
            raise ArgumentError(f"Regression output value must be a float32 Tensor; got {value!r}. Cast it.")
        self._value = value

    @property
    def value(self) -> Any:
        """Returns the regression output."""
        return self._value

    def tensors(self) -> dict[str, Any]:
        """Returns the outputs of the signature, by name."""
        return {REGRESS_OUTPUTS: self._value}


class _SupervisedOutput(ExportOutput):
    """Loss, predictions and metrics.

    Args:
        loss: A tensor, or a dict of tensors; their names are made to begin with "loss".
        predictions: The predictions, likewise, with "predictions".
        metrics: (value, update) pairs, results of lockstep.estimator.metrics or keras.metrics.Metric objects, by name;
            each gives "metrics/NAME/value" and "metrics/NAME/update_op", of the batch.

    Raises:
        ArgumentError: If something is no tensor, or has no name.
    """

    def __init__(
        self, loss: Tensor | None = None, predictions: PyTree | None = None, metrics: Mapping[str, Any] | None = None
    ) -> None:
        self._loss = None if loss is None else _prefix_tensors(loss, "loss")
        self._predictions = None if predictions is None else _prefix_tensors(predictions, "predictions")
        self._metrics = None if metrics is None else _name_metrics(metrics)

    @property
    def loss(self) -> dict[str, Any] | None:
        """Returns the loss by name."""
        return self._loss

    @property
    def predictions(self) -> dict[str, Any] | None:
        """Returns the predictions by name."""
        return self._predictions

    @property
    def metrics(self) -> dict[str, Any] | None:
        """Returns values and updates of the metrics by name."""
        return self._metrics

    def tensors(self) -> dict[str, Any]:
        """Returns the outputs of the signature, by name."""
        return {**(self._loss or {}), **(self._predictions or {}), **(self._metrics or {})}


class TrainOutput(_SupervisedOutput):
    """The output of a training signature. Source: tf.estimator.export's TrainOutput."""

    # TensorFlow's SUPERVISED_TRAIN_METHOD_NAME; no server serves it.
    method_name = "tensorflow/supervised/training"


class EvalOutput(_SupervisedOutput):
    """The output of an evaluation signature, for one batch. Source: tf.estimator.export.EvalOutput."""

    method_name = "tensorflow/supervised/eval"


def export_outputs_of(export_outputs: Any, predictions: PyTree) -> dict[str, ExportOutput]:
    """Returns an EstimatorSpec's export outputs, by default its predictions, with a default one.

    Raises:
        ArgumentError: If one is no `ExportOutput`, or none of several is the default.
    """
    if export_outputs is None:
        return {DEFAULT_SERVING_SIGNATURE_DEF_KEY: PredictOutput(predictions)}
    if not isinstance(export_outputs, Mapping) or not all(isinstance(o, ExportOutput) for o in export_outputs.values()):
        raise ArgumentError(
            f"`export_outputs` must be dict of ExportOutputs by name, received: {export_outputs!r}. Example: "
            "{'serving_default': PredictOutput(predictions)}"
        )
    outputs = {str(name or "None"): output for name, output in export_outputs.items()}
    # TensorFlow's rule: a single output is also the default one.
    if len(outputs) == 1:
        outputs[DEFAULT_SERVING_SIGNATURE_DEF_KEY] = next(iter(outputs.values()))
    if outputs and DEFAULT_SERVING_SIGNATURE_DEF_KEY not in outputs:
        raise ArgumentError(
            "Multiple `export_outputs` were provided, but none of them are specified as the default. Received: "
            f"{', '.join(outputs)}. Name one {DEFAULT_SERVING_SIGNATURE_DEF_KEY!r}."
        )
    return outputs


def _name_tensors(tensors: PyTree, default: str, label: str | None = None) -> dict[str, Any]:
    named = tensors if isinstance(tensors, Mapping) else {default: tensors}
    outputs: dict[str, Any] = {}
    for key, value in named.items():
        if not _is_tensor(value):
            raise ArgumentError(f"{label or default} output value must be a Tensor; got {value!r}. Make it an array.")
        outputs[_key(key, label or default)] = value
    return outputs


def _key(key: object, label: str) -> str:
    # TensorFlow's heads name outputs by tuples, such as (head, key).
    name = _SEPARATOR.join(map(str, key)) if isinstance(key, tuple) else key
    if not isinstance(name, str):
        raise ArgumentError(f"{label} output key must be a string; got {key!r}. Rename it.")
    return name


def _prefix_tensors(tensors: PyTree, prefix: str) -> dict[str, Any]:
    return {_add_prefix(key, prefix): value for key, value in _name_tensors(tensors, prefix).items()}


def _add_prefix(key: str, prefix: str) -> str:
    return key if key.startswith(prefix) else f"{prefix}{_SEPARATOR}{key}"


def _name_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    named: Mapping[str, Any] = metrics if isinstance(metrics, Mapping) else {"metrics": metrics}
    for key, metric in named.items():
        name = _add_prefix(_key(key, "metrics"), "metrics")
        pair: Any = (metric.result(), metric.result()) if hasattr(metric, "result") else metric
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(_is_tensor, pair)):
            raise ArgumentError(
                f"{name} output value must be a Tensor, and its update, or a metric; got {metric!r}. Use a function of "
                "lockstep.estimator.metrics, or a keras.metrics.Metric."
            )
        for part, value in zip(("value", "update_op"), pair, strict=True):
            tensors[f"{name}{_SEPARATOR}{part}"] = value
    return tensors


def _is_tensor(value: object) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic, Words, Text))


def _is_real(value: object) -> bool:
    return isinstance(value, (jax.Array, np.ndarray)) and jnp.issubdtype(value.dtype, jnp.floating)
