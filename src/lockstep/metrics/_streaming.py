"""Metrics as sums over batches, from which a result is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._model_fn.records import MetricOp
from lockstep._model_fn.scope import ModelScope, demand

_NAMES = "lockstep.metrics/names"


class Streaming(keras.metrics.Metric):
    """Adds up arrays over batches and replicas.

    Args:
        name: Of the metric.
        sums: What one batch adds, by name; their shapes and types are those of the state.
        compute: The result, of the sums over all batches by name.
    """

    def __init__(self, name: str, sums: Mapping[str, jax.Array], compute: Callable[..., Any]) -> None:
        super().__init__(name=name)
        self._compute = compute
        self._sums = {
            key: self.add_variable(array.shape, "zeros", array.dtype.name, aggregation="sum", name=key)
            for key, array in sums.items()
        }

    def update_state(self, **sums: jax.Array) -> None:
        """Adds what a batch gives."""
        for key, array in sums.items():
            self._sums[key].assign(self._sums[key].value + array)

    def result(self) -> Any:
        """Returns the result over all batches so far."""
        return self._compute(**{key: variable.value for key, variable in self._sums.items()})


class Report:
    """How a metric function hands out its metric.

    Args:
        function: The function's name, for errors.
        name: What the metric is called; the names of a model_fn's metrics are made different.
        values: The names of collections that get the result, or `None`.
        updates: The names of collections that get the result of the update, or `None`.
    """

    def __init__(self, function: str, name: str, values: Any, updates: Any) -> None:
        self._scope = demand(f"lockstep.metrics.{function}")
        self._name = _unique(self._scope, name)
        self._values = _collections(values)
        self._updates = _collections(updates)

    def __call__(self, sums: Mapping[str, jax.Array], compute: Callable[..., Any]) -> MetricOp:
        """Makes the metric and adds this batch to it; see `Streaming`."""
        metric = Streaming(self._name, sums, compute)
        metric.update_state(**sums)
        result = metric.result()
        for collection in (*self._values, *self._updates):
            self._scope.collections.setdefault(collection, []).append(result)
        return MetricOp(result, result, metric)


def wide(array: Any) -> jax.Array:
    """Returns an array as float64, or float32 where JAX has no 64 bits."""
    return jnp.asarray(array).astype(jax.dtypes.canonicalize_dtype(jnp.float64))


def _unique(scope: ModelScope, name: str) -> str:
    taken = scope.collections.setdefault(_NAMES, [])
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.append(found)
    return found


def _collections(names: Any) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)
