"""Metrics of heads."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._types import Array, Metric


class AccuracyBaseline(keras.metrics.Mean):
    """The accuracy of a model that always predicts the more frequent one of two classes.

    Updated with labels 0 and 1, and weights.
    """

    def result(self) -> Any:
        """Returns the larger of the mean and 1 minus the mean."""
        mean: Any = super().result()
        return jnp.maximum(mean, 1 - mean)


def update(metric: Metric, *values: Array, weights: jax.Array | None = None) -> None:
    """Updates a metric with each number on its own; Keras would average those of an example first.

    Args:
        metric: A Keras metric.
        values: The metric's arguments, such as labels and predictions, in one shape.
        weights: In a shape that broadcasts to that one; `None` for 1.
    """
    shape = jnp.shape(values[0])
    flat = [jnp.asarray(value).reshape(-1) for value in values]
    metric.update_state(*flat, sample_weight=None if weights is None else jnp.broadcast_to(weights, shape).reshape(-1))
