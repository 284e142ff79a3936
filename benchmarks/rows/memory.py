"""Beside the rows: resident memory over epochs of a dataset in memory. It must not grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.case import OURS, Bar, Case, Side

_GROWTH, _ROW = "growth", 1024


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """Shuffles, maps, batches and trains a small model, reading ahead."""
    import lockstep as ls  # isort: split
    import keras

    rows = options["megabytes"] * 1_000_000 // (4 * _ROW)
    data = np.random.default_rng(0).random((rows, _ROW), np.float32)
    dataset = ls.data.Dataset.from_tensor_slices((data, data[:, :1])).map(lambda x, y: (x * 2 - 1, y))
    dataset = dataset.shuffle(rows // 2).batch(256).prefetch(4)
    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((_ROW,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    found: list[float] = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            found.append(_resident())

    model.fit(dataset, epochs=options["epochs"], verbose=0, callbacks=[Watch()])
    later = found[1:]
    return {_GROWTH: max(later) / later[0] - 1, "MB": later[0]}


def _resident() -> float:
    """Resident memory of this process, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


CASES = [
    Case(
        row=8,
        name="Memory",
        title="Resident memory over epochs of 500 MB in memory: shuffle, map, batch, prefetch, `fit`",
        module="benchmarks.rows.memory",
        metrics={_GROWTH: "of the largest epoch over the second", "MB": "after the second epoch"},
        sides=[Side(OURS, "lockstep", "lockstep", "ours", {"megabytes": 500})],
        bars=[Bar("growth", (OURS, _GROWTH), [], 0.05, 0.02, "value", at_most=True)],
    )
]
