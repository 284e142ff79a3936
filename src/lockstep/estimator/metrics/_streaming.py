"""Streaming metrics: arguments in one shape, sums over batches and replicas, results computed from the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import keras

from lockstep._text import is_text
from lockstep._types import ArrayLike, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator._model_fn.scope import demand

Collections = str | Sequence[str] | None
_NAMES = "lockstep.estimator.metrics/names"


class PairMetric(Protocol):
    """The signature of metrics of labels and predictions that need no further argument."""

    def __call__(
        self,
        labels: Tensor,
        predictions: Tensor,
        weights: Tensor | None = None,
        metrics_collections: Collections = None,
        updates_collections: Collections = None,
        name: str | None = None,
    ) -> MetricOp: ...


class StreamingMetric(keras.metrics.Metric):
    """Sums of arrays over batches and replicas; `compute` takes them by name and returns the result."""

    def __init__(self, name: str, sums: Mapping[str, jax.Array], compute: Callable[..., jax.Array]) -> None:
        super().__init__(name=name)
        self._compute = compute
        # "sum": the step program all-reduces these variables, so that N replicas report what one device would.
        self._sums = {
            key: self.add_variable(array.shape, "zeros", array.dtype.name, aggregation="sum", name=key)
            for key, array in sums.items()
        }

    def update_state(self, **sums: jax.Array) -> None:
        """Adds one batch's summands."""
        for key, array in sums.items():
            self._sums[key].assign(self._sums[key].value + array)

    def result(self) -> jax.Array:
        """Returns the result over all batches so far."""
        return self._compute(**{key: variable.value for key, variable in self._sums.items()})


def streaming_metric(
    function: str,
    name: str,
    sums: Mapping[str, jax.Array],
    compute: Callable[..., jax.Array],
    metrics_collections: Collections,
    updates_collections: Collections,
) -> MetricOp:
    """Creates a metric in the current model_fn, adds this batch, and returns `(value, update)`.

    `function` is the public function's name, for errors; `name` is made unique in the model_fn.
    """
    scope = demand(f"lockstep.estimator.metrics.{function}")
    # As TensorFlow's variable scopes: mean, mean_1, mean_2.
    taken = scope.collections.setdefault(_NAMES, [])
    unique, number = name, 0
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.append(unique)
    metric = StreamingMetric(unique, sums, compute)
    metric.update_state(**sums)
    result = metric.result()
    for names in (metrics_collections, updates_collections):
        for collection in (names,) if isinstance(names, str) else names or ():
            scope.collections.setdefault(collection, []).append(result)
    # Both are the result: within one compiled step the update has run before either is read.
    return MetricOp(result, result, metric)


def to_array(value: Tensor, argument: str) -> jax.Array:
    """Converts an argument to an array; refuses text and `None`."""
    if value is None or is_text(value) or isinstance(value, (str, bytes)):
        raise ArgumentError(
            f"{argument} must be numbers. Received: {value!r}. Text becomes numbers by a vocabulary, `text.ids(...)`."
        )
    return jnp.asarray(value.value if isinstance(value, keras.Variable) else value)


def widen(array: ArrayLike) -> jax.Array:
    """Returns an array as float64, or float32 where JAX has no 64 bits."""
    # TensorFlow's dtype of the at-k metrics and of mean_iou's confusion matrix.
    return jnp.asarray(array).astype(jax.dtypes.canonicalize_dtype(jnp.float64))


def align(labels: Tensor, predictions: Tensor, weights: Tensor | None) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Brings labels, predictions and weights to the same rank, by TensorFlow's `remove_squeezable_dimensions`.

    Where labels and predictions differ by a last dimension of size 1, it goes; weights of one dimension less get one of
    size 1.
    """
    labels, predictions = to_array(labels, "labels"), to_array(predictions, "predictions")
    if predictions.ndim == labels.ndim + 1 and predictions.shape[-1] == 1:
        predictions = predictions[..., 0]
    elif labels.ndim == predictions.ndim + 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    # Without this check (batch, 1) against (batch,) would broadcast to (batch, batch), and give a plausible number.
    if labels.shape != predictions.shape:
        raise ArgumentError(
            f"Labels and predictions have the same shape. Received: labels of shape {labels.shape}, predictions of "
            f"shape {predictions.shape}."
        )
    return labels, predictions, align_rank(weights, predictions)


def align_rank(weights: Tensor | None, values: jax.Array) -> jax.Array | None:
    """Returns weights with as many dimensions as `values`, if they have one more or one less; `None` for `None`."""
    if weights is None:
        return None
    array = to_array(weights, "weights")
    # A single number keeps its rank of 0: it fits values of any rank.
    if array.ndim and array.ndim == values.ndim - 1:
        return array[..., None]
    if array.ndim != values.ndim + 1:
        return array
    if array.shape[-1] != 1:
        raise _not_broadcastable(array, values)
    return array[..., 0]


def broadcast_weights(weights: jax.Array, values: jax.Array) -> jax.Array:
    """Broadcasts weights to the shape of `values`, as float32."""
    # Stricter than numpy: TensorFlow broadcasts weights along dimensions of size 1 only, and never adds dimensions.
    fits = weights.ndim == values.ndim and all(w in (1, v) for w, v in zip(weights.shape, values.shape, strict=True))
    if weights.ndim and not fits:
        raise _not_broadcastable(weights, values)
    return jnp.broadcast_to(weights.astype(jnp.float32), values.shape)


def _not_broadcastable(weights: jax.Array, values: jax.Array) -> ArgumentError:
    return ArgumentError(
        "Weights are one number, or an array of the values' rank in which each size is 1 or that of the values. "
        f"Received: weights of shape {weights.shape}, values of shape {values.shape}."
    )


def nan_unless(condition: jax.Array, sums: jax.Array) -> jax.Array:
    """Returns `sums`, or NaN where `condition` is false."""
    # TensorFlow stops with an assertion at run time; a compiled step cannot, and NaN stays visible in every later sum.
    return jnp.where(condition, sums, jnp.nan)


def ratio(total: jax.Array, count: jax.Array) -> jax.Array:
    """Returns `total / count`; 0 unless the count is above 0."""
    # TensorFlow's `div_no_nan(total, maximum(count, 0))`: negative weights may bring a count below 0.
    # The inner where keeps the division finite: a NaN in the branch not taken would still make gradients NaN.
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 0)
