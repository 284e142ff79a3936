"""Losses that are given Keras 2's `reduction="auto"`."""

from __future__ import annotations

import functools
from typing import Any

from keras.src.losses import loss as keras_loss


def install() -> None:
    """Completes what `keras.losses.Loss` takes as a reduction."""
    module: Any = keras_loss
    theirs = module.standardize_reduction

    @functools.wraps(theirs)
    def standardize_reduction(reduction: Any) -> Any:
        # Keras 2 chose by context. In compile and fit, and outside of a strategy, it chose this one.
        return theirs("sum_over_batch_size" if reduction == "auto" else reduction)

    module.standardize_reduction = standardize_reduction
