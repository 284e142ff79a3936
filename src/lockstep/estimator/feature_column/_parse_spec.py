"""Parsing specs of columns' features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column._columns import FeatureColumn


def make_parse_example_spec(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Returns the tf.io.parse_example spec of all features that columns need.

    Args:
        feature_columns: The feature columns.

    Returns:
        A FixedLenFeature or VarLenFeature for each key.

    Raises:
        ArgumentError: If an element is no column, or two columns parse one feature differently.

    Source: tf.feature_column.make_parse_example_spec.
    """
    spec: dict[str, Any] = {}
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise ArgumentError(
                f"feature_columns holds columns of lockstep.estimator.feature_column. Received: {column!r}."
            )
        for key, value in column.parse_example_spec.items():
            if spec.setdefault(key, value) != value:
                raise ArgumentError(
                    f"Columns of one feature must parse it in one way. Received for {key!r}: {spec[key]} and {value}."
                )
    return spec
