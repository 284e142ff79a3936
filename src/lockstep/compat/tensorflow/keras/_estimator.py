"""`tf.keras.estimator`: what belongs to `lockstep.estimator`, which is imported when it is used."""

from __future__ import annotations

from typing import Any

from lockstep.compat.tensorflow._types import Argument

__all__ = ["model_to_estimator"]


def model_to_estimator(*args: Argument, **kwargs: Argument) -> Any:
    """Makes an Estimator of a compiled Keras model; see `lockstep.estimator.model_to_estimator`.

    Source: `tf.keras.estimator.model_to_estimator`.
    """
    from lockstep.estimator import model_to_estimator as convert

    return convert(*args, **kwargs)
