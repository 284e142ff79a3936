"""Trainings whose replicas divide the optimizer's state, run on any layout."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
from keras import layers

import lockstep as ls
from lockstep._engine.keras.ownership import ownership
from lockstep.distribute import Strategy
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from lockstep.training.callbacks._model_checkpoint import ModelCheckpoint
from tests.engine.keras.cases import precision

# Six batches of 12, of which the last has 5 rows: replicas cannot divide it.
ROWS, BATCH = 65, 12
# An odd first axis, so that the second one is divided; and a vector of 3, which stays whole.
WIDTH = 32

OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    "accumulating, scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2), 8.0, dynamic_growth_steps=3
    ),
    "averages": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=4),
    "muon": lambda: keras.optimizers.Muon(0.01),
}


def dividing(strategy: Any, is_divided: bool = True) -> Strategy:
    """The same replicas, which divide the optimizer's state."""
    replicas = strategy._demanded_replicas()
    return Strategy(dataclasses.replace(replicas, shards_optimizer_state=is_divided), strategy.cluster_resolver)


def data(floatx: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 6)).astype(floatx), rng.integers(0, 3, ROWS, dtype="int32")


def model_of(strategy: Any, optimizer: str = "adam", steps: int = 1) -> Any:
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(WIDTH, activation="tanh"), layers.BatchNormalization(), layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(OPTIMIZERS[optimizer](), loss, metrics=["accuracy"], steps_per_execution=steps)
    return model


def results(model: Any, **more: Any) -> dict[str, np.ndarray]:
    """All that training has come to, as this task reads it, and what lies on its first device."""
    found = {f"weight {i}": np.asarray(v) for i, v in enumerate(model.variables)}
    found |= {f"optimizer {i}": np.asarray(v) for i, v in enumerate(model.optimizer.variables)}
    found |= {name: np.asarray(value) for name, value in more.items()}
    return found | {"bytes": np.asarray(bytes_on_each(model))}


def bytes_on_each(model: Any) -> list[int]:
    """What each device of this process holds of the optimizer, as the last step has left it."""
    owned = ownership(model)
    assert owned is not None
    placed = [owned.copies.placed(v, vars(v)["_value"]) for v in model.optimizer.variables]
    sizes = [[shard.data.nbytes for shard in array.addressable_shards] for array in placed]
    return [sum(column) for column in zip(*sizes, strict=True)]


def train(
    strategy: Any, is_divided: bool = True, optimizer: str = "adam", policy: str = "", floatx: str = "float64"
) -> dict[str, np.ndarray]:
    """Two epochs in float64, or under a policy."""
    with precision(floatx):
        keras.config.set_dtype_policy(policy or floatx)
        try:
            model = model_of(dividing(strategy, is_divided), optimizer)
            x, y = data(floatx)
            found = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, validation_data=(x, y))
            return results(model, loss=found.history["loss"], val=found.history["val_loss"])
        finally:
            keras.config.set_dtype_policy(floatx)


class Reads(keras.callbacks.Callback):
    """Reads the optimizer's variables after the third step and the first epoch, maybe on one task alone."""

    def __init__(self, is_chief: bool) -> None:
        super().__init__()
        self.found: dict[str, np.ndarray] = {}
        self._reads = is_chief

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2 and self._reads:
            self._note(f"step {int(self.model.optimizer.iterations)}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 0 and self._reads:
            self._note("epoch")
        self.model.optimizer.learning_rate = 0.005

    def _note(self, when: str) -> None:
        values = [np.asarray(v) for v in self.model.optimizer.variables]
        self.found |= {f"{when}: {i}": value for i, value in enumerate(values)}


def read(strategy: Any, directory: str, is_divided: bool = True, everybody: bool = False) -> dict[str, np.ndarray]:
    """What the chief alone reads and saves while the model is trained, and after."""
    divided = dividing(strategy, is_divided)
    is_chief = divided._demanded_replicas().runtime.is_chief
    model, reads = model_of(divided), Reads(is_chief or everybody)
    saves = ModelCheckpoint(str(Path(directory) / "{batch}.keras"), save_freq=4)
    x, y = data()
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[reads, saves])
    if is_chief:
        model.save(Path(directory) / "end.keras")
    for _ in range(2):
        model.train_on_batch(x[:BATCH], y[:BATCH])
        if is_chief:
            reads.found["on batch"] = np.asarray(model.optimizer.variables[2])
    model.evaluate(x, y, batch_size=BATCH, verbose=0)
    return reads.found


def resumed(
    strategy: Any, directory: str, is_divided: bool = True, epochs: int = 2, save_freq: Any = 4
) -> dict[str, np.ndarray]:
    """Trains with backups, and goes on with what there is of them."""
    model = model_of(dividing(strategy, is_divided))
    x, y = data()
    backup = BackupAndRestore(directory, save_freq=save_freq, delete_checkpoint=False)
    found = model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[backup])
    return results(model, loss=found.history["loss"])


def alone(strategy: Any) -> dict[str, np.ndarray]:
    """The chief reads where the others do not wait: between two steps that are not part of a training."""
    model = model_of(dividing(strategy))
    x, y = data()
    model.train_on_batch(x[:BATCH], y[:BATCH])
    runtime = strategy._demanded_replicas().runtime
    try:
        if runtime.is_chief:
            np.asarray(model.optimizer.variables[2])
        else:
            runtime.all_gather_object("something else", None)
    except ls.errors.MismatchError as error:
        return {"told": np.asarray(str(error))}
    return {"devices": np.asarray(len(jax.devices()))}
