"""Loggers to other systems, through their own libraries, without network; and what Prometheus gets when it asks."""

from __future__ import annotations

import json
import socket
import struct
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.keras.callbacks import _of_worker
from lockstep.errors import AddressError, ArgumentError, UnsupportedError
from lockstep.training.callbacks._logger import Logger

X = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def model() -> Any:
    with ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        made.compile(keras.optimizers.SGD(0.01), "mse")
    return made


class Seen(Logger):
    """Keeps what a system would get."""

    def __init__(self, update_freq: Any = "epoch") -> None:
        super().__init__(update_freq)
        self.seen: list[Any] = []

    def open(self, run_id: str | None) -> str:
        self.seen.append(("open", run_id))
        return run_id or "new"

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.seen.append((sorted(values), step))

    def close(self, status: str) -> None:
        self.seen.append(status)


def test_epochs_and_batches_are_sent_in_one_run() -> None:
    logger = Seen(3)
    made = model()
    made.fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[logger])
    epoch = ["epoch/loss", "epoch/number"]
    assert logger.seen == [("open", None), (["batch/loss"], 3), (epoch, 4), (["batch/loss"], 6), (epoch, 8), "finished"]
    made.fit(X, Y, batch_size=16, verbose=0, callbacks=[logger])
    assert logger.seen[6:] == [("open", None), (["batch/loss"], 3), (epoch, 4), "finished"]


def test_a_restart_goes_on_in_the_same_run(tmp_path: Path) -> None:
    class Crash(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise OSError("gone")

    backup = ls.callbacks.BackupAndRestore(tmp_path)
    with pytest.raises(OSError, match="gone"):
        model().fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[Seen(), backup, Crash()])
    again = Seen()
    model().fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[again, backup])
    assert again.seen == [("open", "new"), (["epoch/loss", "epoch/number"], 1), "finished"]


def test_only_the_chief_logs() -> None:
    class Worker:
        is_chief = False

    assert _of_worker([Seen(), keras.callbacks.History()], Worker())[0].__class__ is keras.callbacks.History  # type: ignore[arg-type]


@pytest.mark.parametrize("freq", [0, True, "batches", 1.5])
def test_frequencies_are_checked(freq: Any) -> None:
    with pytest.raises(ArgumentError, match="update_freq"):
        Seen(freq)


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, make in {
        "wandb": ls.callbacks.WeightsAndBiases,
        "mlflow": ls.callbacks.MLflow,
        "prometheus_client": lambda: ls.callbacks.Prometheus(9000),
    }.items():
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UnsupportedError, match=rf"{module}.*pip install 'lockstep\["):
            make()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_mlflow_gets_metrics_and_parameters_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The small library has no database; the whole one keeps files only when asked to.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    uri = (tmp_path / "files").as_uri()
    logger = ls.callbacks.MLflow("first", params={"units": 3}, tracking_uri=uri)
    history = model().fit(X, Y, epochs=3, verbose=0, callbacks=[logger])
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("first").experiment_id])
    assert run.info.status == "FINISHED" and run.data.params == {"units": "3"}
    found = client.get_metric_history(run.info.run_id, "epoch/loss")
    assert [(m.step, m.value) for m in found] == list(enumerate(history.history["loss"]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_weights_and_biases_writes_its_files_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = ls.callbacks.WeightsAndBiases("first", config={"units": 3}, mode="offline", log_dir=tmp_path)
    history = model().fit(X, Y, epochs=3, verbose=0, callbacks=[logger])
    wandb.teardown()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    losses = [float(item) for item in _history_of(file, "epoch/loss")]
    assert losses == pytest.approx(history.history["loss"])


def _history_of(file: Path, key: str) -> list[str]:
    from wandb.proto import wandb_internal_pb2

    found: list[str] = []
    for data in _records(file.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        for item in record.history.item:
            if (item.key or "/".join(item.nested_key)) == key:
                found.append(json.loads(item.value_json))
    return found


def _records(content: bytes) -> Iterator[bytes]:
    """Yields the records of the library's file, which has the format of LevelDB's logs after seven bytes of its own."""
    position, whole, block = 7, b"", 1 << 15
    while position + 7 <= len(content):
        if block - position % block < 7:
            position += block - position % block
            continue
        size, kind = struct.unpack("<HB", content[position + 4 : position + 7])
        whole += content[position + 7 : position + 7 + size]
        position += 7 + size
        # 1: a whole record; 2, 3 and 4: the first, a middle and the last piece of one.
        if kind in (1, 4):
            yield whole
            whole = b""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.slow
def test_prometheus_gets_what_it_asks_for_while_fit_runs() -> None:
    pytest.importorskip("prometheus_client")
    port, texts = free_port(), list[str]()

    def ask(epoch: int, logs: Any) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            texts.append(answer.read().decode())

    data = ls.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x + 0.0, y)).batch(16)
    for last in (False, False, True):
        watched = [ls.callbacks.Prometheus(port), keras.callbacks.LambdaCallback(on_epoch_end=ask)]
        try:
            model().fit(data, epochs=2, verbose=0, callbacks=watched)
            break
        except AddressError:  # Another process was given the port meanwhile.
            if last:
                raise
            port = free_port()
    values = dict(line.rsplit(" ", 1) for line in texts[-1].splitlines() if not line.startswith("#"))
    before = dict(line.rsplit(" ", 1) for line in texts[0].splitlines() if not line.startswith("#"))
    assert float(values["lockstep_steps_total"]) - float(before["lockstep_steps_total"]) == 4
    assert float(values["lockstep_step"]) == 8
    assert float(values["lockstep_step_seconds"]) > 0
    assert {"lockstep_input_wait_seconds_total", "lockstep_input_buffer_chunks"} <= values.keys()
    assert float(values['lockstep_seconds_total{place="the call of a step, or its compilation"}']) > 0
    # It ends with training.
    with pytest.raises(OSError, match="refused"):
        ask(0, None)


def test_a_port_in_use_is_refused_by_name() -> None:
    pytest.importorskip("prometheus_client")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        with pytest.raises(AddressError, match=f"port {port} on 127.0.0.1 for this process"):
            model().fit(X, Y, verbose=0, callbacks=[ls.callbacks.Prometheus(port)])
    with pytest.raises(ArgumentError, match="port"):
        ls.callbacks.Prometheus(0)
