"""`adapt` of layers of numbers, for what Keras 2 took: datasets of this package, lists and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from lockstep._types import Layer
from lockstep.compat.tensorflow.keras._patches._patch import replaces


def _batches(data: Any, steps: int | None, batch_size: int | None) -> Iterator[np.ndarray]:
    # Imported when it is used: the package of text layers is large.
    from lockstep.compat.tensorflow.keras._preprocessing.host_layer import batches_of

    return iter(batches_of(data, steps, batch_size))


@replaces(keras.layers.Normalization, "adapt")
def _adapt_normalization(
    original: Callable[..., None],
    self: Layer,
    data: Any,
    batch_size: int | None = None,
    steps: int | None = None,
) -> None:
    """Computes mean and variance over batches, which are merged as those of one array."""
    if isinstance(data, np.ndarray) and steps is None:
        original(self, np.asarray(data))
        return
    count, mean, variance = 0, np.zeros(()), np.zeros(())
    for batch in _batches(data, steps, batch_size):
        if not self.built:
            self.build(batch.shape)
        axes = self._reduce_axis if batch.ndim else ()
        # In 64 bits: sums over many batches keep their digits.
        values = batch.astype("float64")
        number = int(np.prod([values.shape[axis] for axis in axes], dtype="int64"))
        new_mean, new_variance, total = values.mean(axes), values.var(axes), count + number
        shift = new_mean - mean
        mean = mean + shift * (number / total)
        variance = (variance * count + new_variance * number + shift**2 * (count * number / total)) / total
        count = total
    if count:
        self.adapt_mean.assign(mean.reshape(self._mean_and_var_shape))
        self.adapt_variance.assign(variance.reshape(self._mean_and_var_shape))
        self.finalize_state()


@replaces(keras.layers.Discretization, "adapt")
def _adapt_discretization(
    original: Callable[..., None],
    self: Layer,
    data: Any,
    batch_size: int | None = None,
    steps: int | None = None,
) -> None:
    """Estimates quantiles over batches, of 32 examples for arrays as in Keras 2."""
    if self.num_bins is None:
        # Keras' own error.
        original(self, np.zeros(1))
    self.reset_state()
    for batch in _batches(data, steps, batch_size):
        self.update_state(batch)
    self.finalize_state()
