"""Trains a recommender whose table of items lies on parameter servers.

lockstep run --workers 2 --ps 2 examples/parameter_servers.py      two workers and two servers on this machine
python examples/parameter_servers.py                               one process; elsewhere, TF_CONFIG says who takes part
"""

from __future__ import annotations

import argparse

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np

BATCH, SEEN = 256, 10


def clicks(items: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the items that each visitor has seen, and whether most of them have an even number."""
    random = np.random.default_rng(0)
    # Log-uniform, as popularity is: few items are seen by many, and most by hardly anybody.
    seen = (np.exp(random.random((examples, SEEN)) * np.log(items)) - 1).astype(np.int32)
    return seen, (np.mean(seen % 2 == 0, axis=1) > 0.5).astype(np.float32)


def build_model(items: int) -> keras.Model:
    """Returns the compiled network: servers hold the table, and a worker the rows that its batch needs."""
    model = keras.Sequential(
        [
            keras.Input((SEEN,), dtype="int32"),
            keras.layers.Embedding(items, 16),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adagrad(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a recommender on parameter servers.")
    parser.add_argument("--items", type=int, default=100_000, help="rows of the table (default: 100,000)")
    parser.add_argument("--examples", type=int, default=25_600, help="visitors (default: 25,600)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over them (default: 3)")
    parser.add_argument("--sync", action="store_true", help="follow one device's trajectory; default: asynchronously")
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    strategy = ls.distribute.ParameterServerStrategy(mode="sync" if args.sync else "async")
    seen, likes = clicks(args.items, args.examples)
    dataset = ls.data.Dataset.from_tensor_slices((seen, likes)).batch(BATCH)
    with strategy.scope():
        model = build_model(args.items)
    # Every task makes the same calls: on servers they return when the chief's have ended, with the same result.
    history = model.fit(dataset, epochs=args.epochs)
    if strategy.is_chief:
        losses = history.history["loss"]
        print(f"Loss: {losses[0]:.4f} in the first epoch, {losses[-1]:.4f} in the last", flush=True)


if __name__ == "__main__":
    main()
