"""Methods of Keras 2's models that ask what a model says or holds."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


def install() -> None:
    """Completes `keras.Model` and `keras.Sequential`."""
    model: Any = keras.Model
    model.state_updates = property(_no_updates)
    model.updates = property(_no_updates)
    model.get_updates_for = lambda self, inputs: []
    model.get_losses_for = _losses_for
    sequential: Any = keras.Sequential
    sequential.predict_proba = _predict_proba
    sequential.predict_classes = _predict_classes


def _no_updates(self: Any) -> list[Any]:
    """Returns what Keras 2 returns outside of graphs: updates are made as they come."""
    return []


def _losses_for(self: Any, inputs: Any) -> list[Any]:
    """Returns all penalties for `None`, and none for inputs, so that both together are those of the model."""
    return list(self.losses) if inputs is None else []


def _predict_proba(self: Any, x: Any, batch_size: int | None = None, verbose: Any = 0, steps: int | None = None) -> Any:
    """Keras 2's older name of `predict`."""
    return self.predict(x, batch_size=batch_size, verbose=verbose, steps=steps)


def _predict_classes(
    self: Any, x: Any, batch_size: int | None = None, verbose: Any = 0, steps: int | None = None
) -> np.ndarray:
    """Returns the most probable class of each example; of a single output, whether it exceeds one half."""
    said = np.asarray(self.predict(x, batch_size=batch_size, verbose=verbose, steps=steps))
    return said.argmax(axis=-1) if said.shape[-1] > 1 else (said > 0.5).astype("int32")
