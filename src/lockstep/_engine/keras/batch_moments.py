"""Batch normalisation over the global batch, in the replica view.

Keras' own `synchronized=True` is not implemented for JAX. In the global view nothing is needed: there the batch *is*
the global one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from jax import lax
from keras import layers, ops

from lockstep._engine.keras.replaced import replaced


@contextlib.contextmanager
def moments_over_replicas(axis: str) -> Generator[None]:
    """While open, `BatchNormalization` takes its moments over all replicas along `axis`."""

    def moments(self: Any, inputs: Any, mask: Any) -> tuple[Any, Any]:
        weights = ops.ones_like(inputs) if mask is None else ops.broadcast_to(_expanded(mask, inputs), inputs.shape)
        axes = self._reduction_axes
        total = lax.psum(ops.sum(weights, axes), axis)
        count = total if mask is None else total + 1e-7
        mean = lax.psum(ops.sum(inputs * weights, axes), axis) / count
        shape = [1 if i in axes else n for i, n in enumerate(inputs.shape)]
        deviation = (inputs - ops.reshape(mean, shape)) * weights
        return mean, lax.psum(ops.sum(deviation * deviation, axes), axis) / count

    with replaced(layers.BatchNormalization, "_moments", lambda theirs: moments):
        yield


def _expanded(mask: Any, inputs: Any) -> Any:
    return ops.expand_dims(ops.cast(mask, inputs.dtype), -1)
