"""Streaming metrics: state that is summed over batches and replicas, and a result that is computed from the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import keras

from lockstep._types import ArrayLike
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator._model_fn.scope import ModelScope, demand

Collections = str | Sequence[str] | None
_NAMES = "lockstep.estimator.metrics/names"


class StreamingMetric(keras.metrics.Metric):
    """Sums of arrays over batches and replicas.

    Args:
        name: Name of the metric.
        sums: One batch's summands, by name; the state has their shapes and types.
        compute: Computes the result from the sums over all batches, given by name.
    """

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

    Args:
        function: The public function's name, for errors.
        name: Name of the metric; made unique in the model_fn.
        sums: See `StreamingMetric`.
        compute: See `StreamingMetric`.
        metrics_collections: Names of collections that the result joins.
        updates_collections: Names of collections that the update's result joins.

    Raises:
        StartupOrderError: Outside of a model_fn.
    """
    scope = demand(f"lockstep.estimator.metrics.{function}")
    metric = StreamingMetric(_unique_name(scope, name), sums, compute)
    metric.update_state(**sums)
    result = metric.result()
    for names in (metrics_collections, updates_collections):
        for collection in (names,) if isinstance(names, str) else names or ():
            scope.collections.setdefault(collection, []).append(result)
    # Both are the result: within one compiled step the update has run before either is read.
    return MetricOp(result, result, metric)


def widen(array: ArrayLike) -> jax.Array:
    """Returns an array as float64, or float32 where JAX has no 64 bits."""
    return jnp.asarray(array).astype(jax.dtypes.canonicalize_dtype(jnp.float64))


def _unique_name(scope: ModelScope, name: str) -> str:
    # As TensorFlow's variable scopes: mean, mean_1, mean_2.
    taken = scope.collections.setdefault(_NAMES, [])
    unique, number = name, 0
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.append(unique)
    return unique
