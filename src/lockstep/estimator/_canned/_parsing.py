"""Parsing specs for the inputs of canned estimators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep._types import ArrayLike, DType
from lockstep.data.internal import FixedLenFeature
from lockstep.errors import ArgumentError
from lockstep.estimator._canned._parts import WeightColumn
from lockstep.estimator.feature_column import make_parse_example_spec, numeric_column
from lockstep.estimator.feature_column._numeric import NumericColumn


def classifier_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: DType = np.int64,
    label_default: ArrayLike | None = None,
    weight_column: WeightColumn | None = None,
) -> dict[str, Any]:
    """Returns the `tf.io.parse_example` spec of a classifier's features, label and weights.

    Args:
        feature_columns: The feature columns.
        label_key: The label's key.
        label_dtype: int64, text (with a label_vocabulary) or float32 (for two classes).
        label_default: The label of examples without one; `None` if each must have one.
        weight_column: The feature of example weights: its name, or a numeric column.

    Raises:
        ArgumentError: If the label's or the weights' key is a feature column's, or an argument is wrong.

    Source: tf.estimator.classifier_parse_example_spec.
    """
    # (1,), not (): the shape of labels that heads of classes expect in TensorFlow.
    return _spec(feature_columns, label_key, FixedLenFeature((1,), label_dtype, label_default), weight_column)


def regressor_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: DType = np.float32,
    label_default: ArrayLike | None = None,
    label_dimension: int = 1,
    weight_column: WeightColumn | None = None,
) -> dict[str, Any]:
    """Returns the `tf.io.parse_example` spec of a regressor's features, label and weights.

    Args:
        feature_columns: The feature columns.
        label_key: The label's key.
        label_dtype: float32 or int64.
        label_default: The label of examples without one; `None` if each must have one.
        label_dimension: Number of labels per example.
        weight_column: The feature of example weights: its name, or a numeric column.

    Raises:
        ArgumentError: If the label's or the weights' key is a feature column's, or an argument is wrong.

    Source: tf.estimator.regressor_parse_example_spec.
    """
    label = FixedLenFeature((label_dimension,), label_dtype, label_default)
    return _spec(feature_columns, label_key, label, weight_column)


def _spec(columns: Iterable[Any], label_key: Any, label: FixedLenFeature, weight_column: Any) -> dict[str, Any]:
    if not isinstance(label_key, str):
        raise ArgumentError(f"label_key must be the name of the label. Received: {label_key!r}.")
    # Columns, label and weights in one spec: parse_example reads a serialized example once.
    spec = make_parse_example_spec(columns)
    _add(spec, label_key, label, "The label")
    if weight_column is None:
        return spec
    # Weights are parsed as a column's feature, but are none: the model must not learn from them.
    weights = numeric_column(weight_column) if isinstance(weight_column, str) else weight_column
    if not isinstance(weights, NumericColumn):
        raise ArgumentError(f"weight_column must be the name of a feature or a numeric_column. Received: {weights!r}.")
    for key, value in weights.parse_example_spec.items():
        _add(spec, key, value, "Weights")
    return spec


def _add(spec: dict[str, Any], key: str, value: FixedLenFeature, role: str) -> None:
    # TensorFlow refuses it, too: a model that reads its label learns nothing else.
    if key in spec:
        raise ArgumentError(
            f"{role} must not be used as a feature. Received: {key!r}, which is one of {', '.join(sorted(spec))}."
        )
    spec[key] = value
