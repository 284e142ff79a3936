"""`tf.keras.metrics`: metrics that have another name in Keras 3."""

from __future__ import annotations

from typing import Any

import keras

from lockstep.compat.tensorflow.keras._alias import alias

__all__ = ["KLDivergence"]


def _name_as_keras_2(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    # The name is a key of History, and of what evaluate returns.
    return {"name": "kullback_leibler_divergence", **arguments}


KLDivergence = alias(keras.metrics.KLDivergence, _name_as_keras_2)
