"""`examples/mnist.py` as it is written for TensorFlow 2.15: MNIST on all workers together.

`LOCKSTEP_DATA_DIR` names the directory of `mnist/`, as for the example; `keras.datasets` would hash a file first.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

BATCH_PER_REPLICA = 64


def load(name: str, header: int) -> np.ndarray:
    """Reads a file of MNIST, uint8."""
    path = Path(os.environ["LOCKSTEP_DATA_DIR"]) / "mnist" / name
    return np.fromfile(path, np.uint8, offset=header)


def build_model(steps: int) -> tf.keras.Model:
    """Returns the compiled network; its learning rate falls to nothing over `steps` batches."""
    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28)),
            tf.keras.layers.Rescaling(1 / 255),
            tf.keras.layers.Reshape((28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(3e-3, steps)),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    """Trains an epoch."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images = load("train-images-idx3-ubyte", 16).reshape(-1, 28, 28)
    labels = load("train-labels-idx1-ubyte", 8)
    batch_size = BATCH_PER_REPLICA * strategy.num_replicas_in_sync
    with strategy.scope():
        model = build_model(steps=math.ceil(len(images) / batch_size))
    model.fit(images, labels, batch_size=batch_size, epochs=1)


if __name__ == "__main__":
    main()
