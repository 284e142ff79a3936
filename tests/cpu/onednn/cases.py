"""A network whose convolutions and products oneDNN computes, for the processes of a test cluster."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
from keras import layers

from lockstep._cpu.onednn import custom_call, library

_EXAMPLES, _SIDE = 60, 24


def train(strategy: Any, batch_size: int) -> dict[str, np.ndarray]:
    """Trains for two epochs; returns weights, losses, and how many different calls oneDNN has computed."""
    keras.utils.set_random_seed(3)
    keras.backend.clear_session()
    random = np.random.default_rng(5)
    x = random.standard_normal((_EXAMPLES, _SIDE, _SIDE, 8)).astype(np.float32)
    y = random.integers(0, 5, _EXAMPLES, np.int32)
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        model = keras.Sequential(
            [
                keras.Input((_SIDE, _SIDE, 8)),
                layers.Conv2D(32, 3, padding="same", activation="tanh"),
                layers.Conv2D(64, 3, strides=2, padding="same", activation="tanh"),
                layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="tanh"),
                layers.DepthwiseConv2D(3, padding="same", activation="tanh"),
                layers.Flatten(),
                layers.Dense(64, activation="tanh"),
                layers.Dense(5),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
    history = model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
    found = {f"weight {i}": np.asarray(v) for i, v in enumerate(model.weights)}
    found["losses"] = np.asarray(history.history["loss"])
    found["predictions"] = model.predict(x, batch_size=batch_size, verbose=0)
    used = strategy is not None and library.is_enabled()
    return {**found, "calls": np.int64(len(custom_call.operations()) if used else 0)}
