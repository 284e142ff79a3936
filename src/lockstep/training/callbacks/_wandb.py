"""Logs of training in Weights & Biases, through its own library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from lockstep.training.callbacks._logger import Logger, library


class WeightsAndBiases(Logger):
    """Logs metrics to Weights & Biases: `epoch/<metric>`, and `batch/<metric>` if asked for; on the chief alone.

    Needs the extra `lockstep[wandb]`. Without network, `WANDB_MODE=offline` or `mode="offline"` writes files that
    `wandb sync` sends later. With `BackupAndRestore` a training that is started again goes on in the same run.

    Args:
        project: The project of the run. Default: the library's.
        name: The name of the run. Default: one that the library makes up.
        config: Hyperparameters by name.
        update_freq: `"epoch"`, or after how many batches their metrics are logged, too.
        mode: `"online"`, `"offline"` or `"disabled"`. Default: the library's, from `WANDB_MODE`.
        log_dir: Where the library writes its files. Default: the library's, from `WANDB_DIR`.

    Raises:
        ArgumentError: If `update_freq` is out of range.
        UnsupportedError: If the library is not installed.

    Source: `wandb.init`.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        update_freq: Literal["epoch"] | int = "epoch",
        mode: Literal["online", "offline", "disabled"] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(update_freq)
        self._wandb = library("wandb", "wandb")
        self._settings: dict[str, Any] = {"project": project, "name": name, "mode": mode}
        self._config = None if config is None else dict(config)
        # Not `log_dir`: that attribute would make this the log directory of the run's report.
        self._files = None if log_dir is None else os.fspath(log_dir)
        self._run: Any = None

    def open(self, run_id: str | None) -> str:
        """Opens a run, or the one with this id again; returns its id."""
        self._run = self._wandb.init(
            **self._settings,
            config=self._config,
            dir=self._files,
            id=run_id,
            # Not "must": a run that was written offline is not known to the server.
            resume=None if run_id is None else "allow",
        )
        return str(self._run.id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Sends values."""
        self._run.log(dict(values), step=step)

    def close(self, status: Literal["finished", "preempted"]) -> None:
        """Ends the run; one that was preempted is marked so."""
        if status == "preempted":
            self._run.mark_preempting()
        # 128 + SIGTERM, as the process itself ends: a run that was marked, and ends with another code than 0, counts as
        # preempted instead of failed.
        self._run.finish(exit_code=0 if status == "finished" else 143)
        self._run = None
