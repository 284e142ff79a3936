"""What the two workers of the quick tests do that no other test has them do."""

from __future__ import annotations

import os
import signal
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

import lockstep as ls
from lockstep.training.callbacks import BackupAndRestore
from tests.distribute.loops import dataset
from tests.engine.keras import resuming


class _Kills(keras.callbacks.Callback):
    """Kills the last worker after a number of batches, and counts them."""

    def __init__(self, after: int | None) -> None:
        super().__init__()
        self.after, self.seen = after, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen += 1
        if self.seen == self.after and _is_last():
            os.kill(os.getpid(), signal.SIGKILL)


def _is_last() -> bool:
    return jax.process_index() == jax.process_count() - 1


def trains_with_backups(strategy: Any, directory: str, kill_after: int | None = None) -> dict[str, np.ndarray]:
    """Three epochs of six batches, with a backup after each fourth."""
    model, kills = resuming.model_of(strategy), _Kills(kill_after)
    x, y = resuming.data()
    callbacks = [BackupAndRestore(directory, save_freq=4), kills]
    history = model.fit(x, y, batch_size=resuming.BATCH, epochs=3, callbacks=callbacks, verbose=0)
    weights = {f"weight {i}": np.asarray(v) for i, v in enumerate(model.variables)}
    return {**weights, "loss": np.asarray(history.history["loss"]), "batches": np.asarray(kills.seen)}


def functions(strategy: Any, rows: int) -> dict[str, np.ndarray]:
    """A loop of the program's own: an epoch is one `ls.function`, a step `strategy.run`."""

    def step(weight: Any, batch: Any) -> tuple[Any, Any]:
        x, y = batch
        replica = ls.distribute.get_replica_context()
        count = replica.all_reduce("sum", x.shape[0])
        loss, gradient = jax.value_and_grad(lambda w: jnp.sum((jnp.tanh(x @ w) - y) ** 2) / count)(weight)
        return weight - 0.1 * replica.all_reduce("sum", gradient), loss

    @ls.function
    def train(weight: Any, batch: Any) -> tuple[Any, Any]:
        weight, loss = strategy.run(step, args=(weight, batch))
        return weight, strategy.reduce("SUM", loss, axis=None)

    weight: Any = jnp.full((3, 1), 0.1)
    losses: list[Any] = []
    for _ in range(2):
        for batch in strategy.experimental_distribute_dataset(dataset(rows)):
            weight, loss = train(weight, batch)
            losses.append(np.asarray(loss))
    return {"weight": np.asarray(weight), "losses": np.array(losses)}


def one_fails(strategy: Any) -> dict[str, np.ndarray]:
    """Raises on the last worker while the others train."""
    model = resuming.model_of(strategy)
    if _is_last():
        raise OSError("a disk has gone")
    x, y = resuming.data()
    model.fit(x, y, batch_size=resuming.BATCH, verbose=0)
    return {}
