"""A loop of a user's own, run by `lockstep run`: asked to end, killed, and started again."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import lockstep as ls
from lockstep.training import Every
from tests.training import programs

EPOCHS = 4


class Begins(keras.callbacks.Callback):
    """Says where training goes on."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        training: Any = self.model
        print(f"generation {os.environ['LOCKSTEP_GENERATION']}, step {training.step}", flush=True)


def main(directory: Path) -> None:
    """Trains, loops once more around single steps, and saves what came of it."""
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    generation, worker = int(os.environ["LOCKSTEP_GENERATION"]), strategy.cluster_resolver.task_id

    def end(training: Any, logs: Any) -> None:
        if (worker, generation, training.step) == (1, 1, 5):
            os.kill(os.getpid(), signal.SIGTERM)
            # A thread takes note of it. Steps that this one made meanwhile would be as many as chance has it.
            preemption = strategy._demanded_replicas().runtime.preemption
            deadline = time.monotonic() + 60
            while not preemption.is_asked:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        if (worker, generation, training.step) == (0, 2, 10):
            os.kill(os.getpid(), signal.SIGKILL)

    where = {"checkpoint_dir": directory / "checkpoints", "save_every": 3}
    callbacks = [Every(5, end, chief_only=False), Begins()]
    found = programs.fitted(strategy, epochs=EPOCHS, callbacks=callbacks, **where)
    found.update({f"loop {k}": v for k, v in programs.looped(strategy).items()})
    if worker == 0:
        np.savez(directory / "found.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
