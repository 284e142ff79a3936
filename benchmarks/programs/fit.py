"""`model.fit`, timed over whole epochs: nothing listens to single batches, unless the caller asks for it."""

from __future__ import annotations

import time
from typing import Any


def timed_fit(
    keras: Any, model: Any, steps: int, seconds: float, least: int = 2, between: Any = None, **arguments: Any
) -> float:
    """Fits for an epoch of warm-up, and then for as many as take `seconds`; returns steps/s.

    Args:
        keras: The Keras that the model was made with.
        model: A compiled model.
        steps: Steps of an epoch.
        seconds: How long to measure.
        least: Measured epochs, at least.
        between: Called after the warm-up.
        **arguments: For `fit`.
    """
    ends: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0 and between is not None:
                between()
            ends.append(time.perf_counter())
            if len(ends) > least and ends[-1] - ends[0] > seconds:
                self.model.stop_training = True

    model.fit(epochs=10_000, callbacks=[Clock()], **{"verbose": 0, **arguments})
    return steps * (len(ends) - 1) / (ends[-1] - ends[0])


def timed_epochs(keras: Any, model: Any, steps: int, epochs: int, between: Any = None, **arguments: Any) -> float:
    """The same for a number of epochs that is known, for workers that must agree; `between` follows the warm-up."""
    marks: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0 and between is not None:
                between()
            if epoch in (0, epochs):
                marks.append(time.perf_counter())

    model.fit(epochs=1 + epochs, callbacks=[Clock()], **{"verbose": 0, **arguments})
    return steps * epochs / (marks[1] - marks[0])
