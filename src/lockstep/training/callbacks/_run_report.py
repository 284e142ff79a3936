"""The callback that names the log directory of a run, and nothing else."""

from __future__ import annotations

import os
from typing import Any

import keras

from lockstep._engine.keras.ownership import ownership
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training._training import Training


class RunReport(keras.callbacks.Callback):
    """Leaves the report of the run in a directory: `report.html`, and the records that it is made of.

    Every run that has a log directory leaves its report there: that of `lockstep run --log-dir` (`LOCKSTEP_LOG_DIR`),
    else of the first callback with a `log_dir`, such as `TensorBoard`, else an Estimator's model_dir. This callback is
    for a program that has none of them. It is for `fit` of a strategy's model and `Program.fit`; each task appends to a
    record of its own, `report/worker-0.jsonl` and so on, and the chief writes the page when training ends.

    Args:
        log_dir: Where; other files may be there, too.

    Examples:
        >>> model.fit(x, y, callbacks=[ls.callbacks.RunReport("runs/first")])

    Raises:
        ArgumentError: If `log_dir` is empty.
        UnsupportedError: If the model is one of plain Keras, when training begins.
    """

    # One dispatch may run several steps: nothing is called after each.
    looks_at_batches = False

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        super().__init__()
        if not log_dir:
            raise ArgumentError(f"log_dir is the path of a directory: received {log_dir!r}.")
        self.log_dir = os.fspath(log_dir)

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuses a model that no strategy trains, whose loop keeps no record."""
        model: Any = self.model
        if not isinstance(model, Training) and ownership(model) is None:
            raise UnsupportedError(
                "RunReport needs a model that belongs to a strategy, whose loop keeps the record. Received: a model of "
                "plain Keras. Create or compile it in a scope: with "
                "lockstep.distribute.MirroredStrategy().scope(): ..."
            )
