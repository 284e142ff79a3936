"""Holds what loggers to other systems have in common: the chief alone logs, and a restart goes on with the same run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

import keras
import numpy as np

from lockstep.errors import ArgumentError, UnsupportedError


class Logger(keras.callbacks.Callback):
    """Base of callbacks that send metrics to a system with runs of its own.

    The run is opened by the first metrics, when a backup has been restored: its id is part of the backup, so that a
    training that is started again goes on in the same run.

    Args:
        update_freq: `"epoch"`, or after how many batches their metrics are sent, too.

    Raises:
        ArgumentError: If `update_freq` is something else.
    """

    # Read by `fit`: the other workers leave the callback out.
    runs_on_chief_only = True

    def __init__(self, update_freq: Literal["epoch"] | int = "epoch") -> None:
        super().__init__()
        is_count = isinstance(update_freq, int) and not isinstance(update_freq, bool) and update_freq >= 1
        if update_freq != "epoch" and not is_count:
            raise ArgumentError(f"update_freq is 'epoch' or a number of batches, at least 1: received {update_freq!r}.")
        self._update_freq: int | None = None if update_freq == "epoch" else int(update_freq)
        self._run_id: str | None = None
        self._steps = 0
        self._is_open = False

    @property
    def looks_at_batches(self) -> bool:
        """Returns whether it must be called after each batch; otherwise one dispatch may run several."""
        return self._update_freq is not None

    def get_state(self) -> dict[str, Any]:
        """Returns the id of the run and the number of batches, for a training that goes on after an interruption."""
        return {"run_id": self._run_id, "steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on in that run."""
        self._run_id, self._steps = state["run_id"], state["steps"]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends the metrics so far, if it is time to."""
        self._steps += 1
        if self._update_freq is not None and self._steps % self._update_freq == 0:
            self._send({f"batch/{name}": value for name, value in _numbers(logs).items()}, self._steps)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Sends the metrics of the epoch."""
        values = {f"epoch/{name}": value for name, value in _numbers(logs).items()}
        # One axis for both: without batches, epochs are counted. Not a metric "epoch": MLflow may keep metrics in
        # files, and that one would be in the way of the directory of the others.
        self._send({**values, "epoch/number": float(epoch + 1)}, epoch if self._update_freq is None else self._steps)

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the run."""
        self._end("finished")

    def on_preempted(self) -> None:
        """Ends this process' part of the run, which a restart goes on with."""
        self._end("preempted")

    def _send(self, values: Mapping[str, float], step: int) -> None:
        if not self._is_open:
            # Not when training begins: only when a backup has been read, `set_state` says which run goes on.
            self._run_id = self.open(self._run_id)
            self._is_open = True
        self.log(values, step)

    def _end(self, status: Literal["finished", "preempted"]) -> None:
        if self._is_open:
            self.close(status)
        self._is_open = False
        if status == "finished":
            # The next fit is another run.
            self._run_id, self._steps = None, 0

    # ---- What each system does ----

    def open(self, run_id: str | None) -> str:
        """Opens a run, or the one with this id again; returns its id."""
        raise AssertionError(type(self))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Sends values."""
        raise AssertionError(type(self))

    def close(self, status: Literal["finished", "preempted"]) -> None:
        """Ends the run, or this process' part of it."""
        raise AssertionError(type(self))


def library(module: str, extra: str) -> Any:
    """Imports the library of a logger.

    Raises:
        UnsupportedError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"This callback logs through the library {module}, which cannot be imported: {error}. Install it: pip "
            f"install 'lockstep[{extra}]'."
        ) from error


def _numbers(logs: Any) -> dict[str, float]:
    return {name: float(np.asarray(value)) for name, value in dict(logs or {}).items() if np.ndim(value) == 0}
