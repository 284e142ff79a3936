"""Features that the tests look at, and what columns make of them outside of a model_fn."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lockstep.estimator.feature_column import DenseFeatures
from lockstep.estimator.feature_column._columns import CategoricalColumn
from lockstep.estimator.feature_column._features import Features


def text(*rows: Any) -> np.ndarray:
    """An object array of text."""
    return np.array(rows, object)


FEATURES: dict[str, Any] = {
    "a": text(["x"], ["yy"], [""], [""]),
    "n": np.array([[1], [2], [-1], [-7]]),
    "v": np.array([[1.0], [2.0], [3.0], [0.0]], np.float32),
    "id": np.array([[0, 1], [1, -1], [-1, -1], [2, 9]]),
}


def categories(column: CategoricalColumn, features: dict[str, Any] = FEATURES) -> list[list[int]]:
    """The categories that a column finds in each example, without those that are not known."""
    # Compiled as a whole, which takes less time than each operation on its own.
    found = jax.jit(lambda: column.ids(Features(features)).ids)()
    return [[int(number) for number in row if number >= 0] for row in np.asarray(found)]


def numbers(columns: Any, features: dict[str, Any] = FEATURES) -> np.ndarray:
    """The numbers that columns give."""
    layer = DenseFeatures(columns)
    layer.build()
    return np.asarray(jax.jit(lambda: layer(features))())
