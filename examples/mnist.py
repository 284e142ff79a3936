"""Trains a small convolutional network on MNIST, on all workers together.

lockstep run --workers 2 examples/mnist.py      two workers on this machine
python examples/mnist.py                        one process; elsewhere, TF_CONFIG says who takes part
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras

BATCH_PER_REPLICA = 64


def build_model(steps: int) -> keras.Model:
    """Returns the compiled network; its learning rate falls to nothing over `steps` batches."""
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, steps)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small convolutional network on MNIST.")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training images (default: 3)")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/mnist"), help="default: runs/mnist")
    args = parser.parse_args()

    strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the workers; reads TF_CONFIG.
    mnist = ls.datasets.load_mnist()
    # Every worker passes all data and the global batch size; each trains on its share of every batch.
    batch_size = BATCH_PER_REPLICA * strategy.num_replicas_in_sync
    with strategy.scope():
        model = build_model(steps=args.epochs * math.ceil(len(mnist.train_images) / batch_size))

    if strategy.is_chief:
        print(f"Data: {mnist.source}")
        print(f"Replicas: {strategy.num_replicas_in_sync}, global batch: {batch_size}", flush=True)
    model.fit(mnist.train_images, mnist.train_labels, batch_size=batch_size, epochs=args.epochs)
    _, accuracy = model.evaluate(mnist.test_images, mnist.test_labels, batch_size=batch_size)

    if strategy.is_chief:
        args.output_dir.mkdir(parents=True, exist_ok=True)
        model.save(args.output_dir / "mnist.keras")
        print(f"Test accuracy: {accuracy:.4f}")
        print(f"Saved: {args.output_dir / 'mnist.keras'}")
        print(f"More workers:  lockstep run --workers 4 {sys.argv[0]}")
        print(f"More devices:  lockstep run --workers 2 --devices-per-worker 2 {sys.argv[0]}")
        print("Your program:  copy this one, or put the strategy and its scope around your own model")


if __name__ == "__main__":
    main()
