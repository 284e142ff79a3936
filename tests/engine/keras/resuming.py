"""Trainings that are interrupted and go on, run on any layout: everything that must equal the undisturbed run."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from keras import layers

from lockstep.checkpoint import _archive
from lockstep.data import AutoShardPolicy, Dataset, Options
from lockstep.errors import Preempted
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from lockstep.training.callbacks._model_checkpoint import ModelCheckpoint

EXAMPLES, BATCH, EPOCHS = 53, 10, 4


class Interrupted(Exception):
    """Stands for what ends a program."""


class Interrupts(keras.callbacks.Callback):
    """Ends the training after so many batches of this run, and sees what there is to be seen."""

    def __init__(self, after: int | None, how: str = "error") -> None:
        super().__init__()
        self.after = after
        self.how = how
        self.seen: list[tuple[int, int, float]] = []
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append((self.epoch, batch, float(logs["loss"])))
        if self.after is not None and len(self.seen) == self.after:
            raise Preempted("asked to end") if self.how == "preempted" else Interrupted


class Counts(keras.callbacks.Callback):
    """Has a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.total, self.norms = 0.0, np.zeros(3, np.float64)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.total += logs["loss"] + np.random.random()
        self.norms = np.roll(self.norms, 1) + self.total

    def get_state(self) -> dict[str, Any]:
        return {"total": self.total, "norms": self.norms}

    def set_state(self, state: dict[str, Any]) -> None:
        self.total, self.norms = state["total"], state["norms"]


def data(rows: int = EXAMPLES) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(rows, 6)).astype("float32"), rng.integers(0, 3, rows, dtype="int32")


def _slices() -> Dataset:
    return Dataset.from_tensor_slices(data())


def _generated() -> Iterator[Any]:
    yield from zip(*data(), strict=True)


def _augmented() -> Iterator[Any]:
    """Draws as it goes."""
    rng = np.random.default_rng(8)
    x, y = data()
    for _ in itertools.count():
        rows = rng.permutation(EXAMPLES)[:BATCH]
        yield x[rows] + rng.normal(scale=0.1, size=(BATCH, 6)).astype("float32"), y[rows]


class Batches(keras.utils.PyDataset):
    """Puts its rows into another order after each epoch, and says in which they are."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = data()
        self.rows = np.arange(EXAMPLES)

    def __len__(self) -> int:
        return -(-EXAMPLES // BATCH)

    def __getitem__(self, index: int) -> Any:
        rows = self.rows[index * BATCH : (index + 1) * BATCH]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.rows)

    def get_state(self) -> Any:
        return self.rows.tolist()

    def set_state(self, state: Any) -> None:
        self.rows = np.asarray(state)


def _off() -> Options:
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    return options


# What fit is given.
SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": data()[0], "y": data()[1], "batch_size": BATCH},
    "arrays, each batch shuffled": lambda: {"x": data()[0], "y": data()[1], "batch_size": BATCH, "shuffle": "batch"},
    "arrays over epochs": lambda: {"x": data()[0], "y": data()[1], "batch_size": BATCH, "steps_per_epoch": 3},
    "dataset": lambda: {"x": _slices().shuffle(20).map(lambda x, y: (x * 2, y)).batch(BATCH)},
    "dataset over epochs": lambda: {
        "x": _slices().map(lambda x, y: (x + 1, y)).repeat().shuffle(17, seed=3).batch(BATCH),
        "steps_per_epoch": 5,
    },
    "filtered": lambda: {"x": _slices().filter(lambda x, y: x[0] > -1).shuffle(9).batch(BATCH)},
    "from_generator": lambda: {"x": Dataset.from_generator(_generated).shuffle(30).batch(BATCH)},
    "each worker all": lambda: {"x": _slices().shuffle(25, seed=1).batch(BATCH).with_options(_off())},
    "generator": lambda: {"x": _augmented(), "steps_per_epoch": 5},
    "PyDataset": lambda: {"x": Batches()},
}


def model_of(strategy: Any, steps_per_execution: int = 1, **changes: Any) -> keras.Model:
    keras.utils.set_random_seed(11)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(changes.get("units", 8), activation="tanh"),
                layers.BatchNormalization(),
                layers.Dropout(0.3),
                layers.Dense(3),
            ]
        )
        model.compile(
            keras.optimizers.Adam(2e-2),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=steps_per_execution,
        )
    return model


def train(strategy: Any, directory: str, **arguments: Any) -> dict[str, np.ndarray]:
    """Trains, to the end or until interrupted; returns what must be equal, and what the batches were.

    XLA spares itself its costly optimizations: what is computed counts here, and not how fast.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        return _train(strategy, directory, **arguments)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def _train(
    strategy: Any,
    directory: str,
    source: str = "arrays",
    save_freq: Any = None,
    after: int | None = None,
    how: str = "error",
    steps_per_execution: int = 1,
    **backup: Any,
) -> dict[str, np.ndarray]:
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    model = model_of(strategy, steps_per_execution)
    interrupts, counts = Interrupts(after, how), Counts()
    callbacks: list[Any] = [
        keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=0.2, factor=0.5),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate),
        keras.callbacks.CSVLogger(str(path / "log.csv")),
        ModelCheckpoint(str(path / "best.weights.h5"), "val_loss", save_best_only=True, save_weights_only=True),
        interrupts,
        counts,
    ]
    csv = callbacks[3]
    if save_freq is not None:
        callbacks.insert(1, BackupAndRestore(str(path / "backup"), save_freq, **backup))
    x, y = data(23)
    validation = Dataset.from_tensor_slices((x, y)).shuffle(23).repeat().batch(7)
    found: dict[str, Any] = {}
    try:
        model.fit(
            **SOURCES[source](),
            epochs=EPOCHS,
            verbose=0,
            callbacks=callbacks,
            validation_data=validation,
            validation_steps=2,
        )
        found = _results(model, counts)
        found["csv"] = np.asarray((path / "log.csv").read_text())
    except (Interrupted, Preempted) as error:
        found["interrupted"] = np.asarray(type(error).__name__)
        if csv.csv_file:  # The chief has it; this stands for the end of the process.
            csv.csv_file.close()
    return {**found, "seen": np.asarray(interrupts.seen, np.float64).reshape(-1, 3)}


def _results(model: Any, counts: Counts) -> dict[str, np.ndarray]:
    found = {f"weight {i}": np.asarray(v) for i, v in enumerate(model.variables)}
    found |= {f"optimizer {i}": np.asarray(v) for i, v in enumerate(model.optimizer.variables)}
    found |= {f"history {k}": np.asarray(v) for k, v in model.history.history.items()}
    return found | {"epochs": np.asarray(model.history.epoch), "norms": counts.norms, "random": np.random.random(3)}


def full_disk(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """From the second backup on, nothing can be written."""
    write = _archive.write

    def failing(file: str, step: int, *rest: Any) -> None:
        if step > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, step, *rest)

    seen = Interrupts(None)
    data = _slices().repeat().batch(BATCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_archive, "write", failing)
        callbacks = [BackupAndRestore(directory, 1), seen]
        found = _failure(lambda: model_of(strategy).fit(data, steps_per_epoch=200, verbose=0, callbacks=callbacks))
    return {**found, "steps": np.asarray(len(seen.seen))}


def chief_alone(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """Only the chief is given the callback."""
    x, y = data()
    callbacks = [BackupAndRestore(directory)] if strategy.cluster_resolver.task_id == 0 else []
    return _failure(lambda: model_of(strategy).fit(x, y, verbose=0, callbacks=callbacks))


def _failure(call: Callable[[], Any]) -> dict[str, np.ndarray]:
    with pytest.raises(Exception) as caught:
        call()
    return {"type": np.asarray(caught.typename), "text": np.asarray(str(caught.value))}
