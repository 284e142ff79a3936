"""A training that is killed once, in the middle of an epoch, and ends as if it had not been."""

import os
import signal

import lockstep as ls
import keras
import numpy as np

strategy = ls.distribute.MultiWorkerMirroredStrategy()

rng = np.random.default_rng(0)
x = rng.normal(size=(1000, 8)).astype("float32")
y = np.tanh(x.sum(axis=1, keepdims=True))


class Accident(keras.callbacks.Callback):
    """Kills the last worker at the 30th batch, in the first attempt alone."""

    def on_train_batch_end(self, batch, logs=None):
        """Sends SIGKILL, which no program can handle."""
        is_last = strategy.cluster_resolver.task_id == strategy.num_replicas_in_sync - 1
        if self.model.optimizer.iterations == 30 and is_last and os.environ.get("LOCKSTEP_GENERATION") == "1":
            os.kill(os.getpid(), signal.SIGKILL)


keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")

backup = ls.callbacks.BackupAndRestore("runs/tutorial-backup", save_freq=5)
history = model.fit(x, y, batch_size=50, epochs=3, verbose=0, callbacks=[backup, Accident()])
if strategy.is_chief:
    print(f"loss {history.history['loss'][-1]:.5f}")
