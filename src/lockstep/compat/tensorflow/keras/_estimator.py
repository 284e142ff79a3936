"""`tf.keras.estimator`: what belongs to `lockstep.estimator`."""

from __future__ import annotations

import importlib
from typing import Any

from lockstep.errors import UnsupportedError

__all__ = ["model_to_estimator"]


def model_to_estimator(*args: Any, **kwargs: Any) -> Any:
    """Makes an Estimator of a compiled Keras model.

    Source: `tf.keras.estimator.model_to_estimator`.

    Raises:
        UnsupportedError: If `lockstep.estimator` is not there, or has no such function.
    """
    try:
        convert = importlib.import_module("lockstep.estimator").model_to_estimator
    except (ModuleNotFoundError, AttributeError) as error:
        raise UnsupportedError(
            "keras.estimator.model_to_estimator needs lockstep.estimator, which this version of lockstep lacks "
            f"({error}). Train the Keras model itself, with model.fit under a strategy's scope."
        ) from error
    return convert(*args, **kwargs)
