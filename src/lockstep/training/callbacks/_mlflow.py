"""Logs of training in MLflow, through its own library."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from lockstep.training.callbacks._logger import Logger, library


class MLflow(Logger):
    """Logs metrics to MLflow: `epoch/<metric>`, and `batch/<metric>` if asked for; on the chief alone.

    Needs the extra `lockstep[mlflow]`. With `BackupAndRestore` a training that is started again goes on in the same
    run. It uses a client of its own: a run that the program has started with `mlflow.start_run` is left alone.

    Args:
        experiment: The experiment, made if there is none of that name.
        run_name: The name of the run. Default: one that the server makes up.
        params: Hyperparameters by name.
        tracking_uri: The server, or where files go without one, such as "sqlite:////data/mlflow.db". Default: the
            library's, from `MLFLOW_TRACKING_URI`.
        update_freq: `"epoch"`, or after how many batches their metrics are logged, too.

    Raises:
        ArgumentError: If `update_freq` is out of range.
        UnsupportedError: If the library is not installed.

    Source: `mlflow.MlflowClient`.
    """

    def __init__(
        self,
        experiment: str = "Default",
        *,
        run_name: str | None = None,
        params: Mapping[str, Any] | None = None,
        tracking_uri: str | None = None,
        update_freq: Literal["epoch"] | int = "epoch",
    ) -> None:
        super().__init__(update_freq)
        self._mlflow = library("mlflow", "mlflow")
        self._experiment, self._run_name = experiment, run_name
        self._params = {str(name): value for name, value in (params or {}).items()}
        self._tracking_uri = tracking_uri
        self._client: Any = None
        self._run = ""

    def open(self, run_id: str | None) -> str:
        """Opens a run, or the one with this id again; returns its id."""
        self._client = self._mlflow.MlflowClient(tracking_uri=self._tracking_uri)
        if run_id is not None:
            # The interrupted process has left it as KILLED; or as RUNNING, if it had no time to say anything.
            self._client.update_run(run_id, status="RUNNING")
        else:
            found = self._client.get_experiment_by_name(self._experiment)
            experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
            run_id = str(self._client.create_run(experiment, run_name=self._run_name).info.run_id)
            # With a new run only: MLflow refuses another value of a parameter that it has.
            for name, value in self._params.items():
                self._client.log_param(run_id, name, value)
        self._run = run_id
        return run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Sends values, in one request."""
        # MLflow's times are in milliseconds since the epoch.
        entities, now = self._mlflow.entities, int(1000 * time.time())
        self._client.log_batch(self._run, [entities.Metric(name, value, now, step) for name, value in values.items()])

    def close(self, status: Literal["finished", "preempted"]) -> None:
        """Ends the run; one that was preempted counts as killed until it goes on."""
        self._client.set_terminated(self._run, "FINISHED" if status == "finished" else "KILLED")
