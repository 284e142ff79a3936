"""Resident memory over epochs of an in-memory dataset: it must not grow.

    .venv/bin/python benchmarks/memory.py [--megabytes 500] [--epochs 20]

Each epoch shuffles, maps, batches and trains a small model under a strategy, reading ahead.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import lockstep as ls

ROW = 1024


def resident() -> float:
    """Resident memory of this process, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main(megabytes: int, epochs: int) -> None:
    """Prints a line per epoch, and the growth after the second."""
    import keras

    rows = megabytes * 1_000_000 // (4 * ROW)
    data = np.random.default_rng(0).random((rows, ROW), np.float32)
    dataset = ls.data.Dataset.from_tensor_slices((data, data[:, :1])).map(lambda x, y: (x * 2 - 1, y))
    dataset = dataset.shuffle(rows // 2).batch(256).prefetch(4)
    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((ROW,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    found: list[float] = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            found.append(resident())
            print(f"epoch {epoch + 1}: {found[-1]:.0f} MB")

    model.fit(dataset, epochs=epochs, verbose=0, callbacks=[Watch()])
    later = found[1:]
    print(f"after the second epoch: {min(later):.0f} to {max(later):.0f} MB, {max(later) / later[0] - 1:+.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    main(given.megabytes, given.epochs)
