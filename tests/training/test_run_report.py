"""Every run leaves its report in its log directory: fit, Program.fit, own loops; with restarts, whatever ends it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.runtime import recorder
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.report._files import read_all
from lockstep.report._run import Run, runs_of
from tests.support.cluster import environment


@pytest.fixture(autouse=True)
def own_recorders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorders are a process' own, and write their page when it ends: here when a training does."""
    monkeypatch.setattr(recorder, "_recorders", {})
    monkeypatch.setattr(recorder, "_PAGE_SECONDS", -1.0)
    monkeypatch.setattr(recorder, "_PAGE_SHARE", 1e9)
    monkeypatch.setattr(recorder, "_FIRST_SECONDS", 0.05)
    monkeypatch.setattr(recorder.atexit, "register", lambda function: None)
    monkeypatch.delenv("LOCKSTEP_LOG_DIR", raising=False)


def model() -> Any:
    with ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        made.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    return made


X = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def newest(log_dir: Path) -> Run:
    return runs_of(read_all(log_dir))[-1]


def test_fit_leaves_curves_times_and_the_page(tmp_path: Path) -> None:
    made = model()
    history = made.fit(
        X, Y, batch_size=8, epochs=3, validation_data=(X, Y), verbose=0, callbacks=[ls.callbacks.RunReport(tmp_path)]
    )
    run = newest(tmp_path)
    curves = run.epoch_curves()
    assert curves.keys() == {"loss", "mae", "val_loss", "val_mae"}
    for name, points in curves.items():
        assert [y for _, y in points] == pytest.approx(history.history[name])
        assert [x for x, _ in points] == [1, 2, 3]
    assert run.step == 24 and run.chief.last.ends[-1]["steps"] == 24  # None of the evaluations.
    # The last sample is of the last step.
    (*_, (step, loss)) = run.curves()["loss"]
    assert step == 24 and loss == pytest.approx(history.history["loss"][-1])
    spent = run.chief.last.spent
    assert spent["evaluation"] > 0 and spent["the call of a step, or its compilation"] > 0
    assert run.chief.last.trains[0]["about"]["epochs"] == 3
    assert "val_mae" in (tmp_path / "report.html").read_text()
    assert not [thread for thread in threading.enumerate() if thread.name == "lockstep-recorder"]


def test_several_fits_are_one_record(tmp_path: Path) -> None:
    made, report = model(), ls.callbacks.RunReport(tmp_path)
    for _ in range(3):
        made.fit(X, Y, batch_size=8, verbose=0, callbacks=[report])
    run = newest(tmp_path)
    assert len(run.chief.sessions) == 1 and len(run.chief.last.trains) == 3 and run.step == 24


@pytest.mark.parametrize("is_moved", [False, True])
def test_the_process_leaves_the_newest_page_where_the_records_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_moved: bool
) -> None:
    at_exit: list[Any] = []
    monkeypatch.setattr(recorder.atexit, "register", at_exit.append)
    monkeypatch.setattr(recorder, "_PAGE_SECONDS", 1e9)  # No page before the process ends.
    here = tmp_path / "here"
    model().fit(X, Y, batch_size=8, verbose=0, callbacks=[ls.callbacks.RunReport(here)])
    if is_moved:
        here.rename(tmp_path / "there")
    for function in at_exit:
        function()
    assert (here / "report.html").exists() is not is_moved
    assert not caplog.records


def test_the_last_sample_is_of_the_last_step_whenever_the_thread_has_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the recorder's thread no step ever seems computed; to the main thread each does."""
    main = threading.main_thread()
    monkeypatch.setattr(recorder, "is_done", lambda array: threading.current_thread() is main)

    def await_a_look(batch: int, logs: Any) -> None:
        deadline = time.monotonic() + 60
        while batch == 1 and next(iter(recorder._recorders.values()))._pending is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    callbacks = [ls.callbacks.RunReport(tmp_path), keras.callbacks.LambdaCallback(on_train_batch_end=await_a_look)]
    history = model().fit(X, Y, batch_size=8, verbose=0, callbacks=callbacks)
    assert newest(tmp_path).curves()["loss"] == [(8, pytest.approx(history.history["loss"][-1]))]


def test_the_time_of_another_run_in_this_process_does_not_count(tmp_path: Path) -> None:
    made = model()
    made.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[ls.callbacks.RunReport(tmp_path / "a")])
    began = time.monotonic()
    made.fit(X, Y, batch_size=8, verbose=0, callbacks=[ls.callbacks.RunReport(tmp_path / "b")])
    taken = time.monotonic() - began
    first, second = newest(tmp_path / "a").chief.last, newest(tmp_path / "b").chief.last
    assert second.ends[-1]["steps"] == 8 and second.ends[-1]["step"] == 24
    assert sum(first.spent.values()) > 0.01
    # Each place is rounded to milliseconds.
    assert sum(second.spent.values()) < taken + 1e-3 * len(second.spent)


def test_an_error_is_told_and_the_page_is_there(tmp_path: Path) -> None:
    def fail(batch: int, logs: Any) -> None:
        raise OSError("no room for <this>")

    callbacks = [ls.callbacks.RunReport(tmp_path), keras.callbacks.LambdaCallback(on_train_batch_end=fail)]
    with pytest.raises(OSError, match="no room"):
        model().fit(X, Y, verbose=0, callbacks=callbacks)
    assert "OSError: no room for &lt;this&gt;" in (tmp_path / "report.html").read_text()


def test_nobody_asked_so_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model().fit(X, Y, verbose=0)
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_the_launcher_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_LOG_DIR", str(tmp_path / "launcher"))
    model().fit(X, Y, verbose=0, callbacks=[ls.callbacks.TensorBoard(tmp_path / "own")])
    assert (tmp_path / "launcher/report.html").exists() and not (tmp_path / "own/report").exists()


def test_programs_leave_theirs(tmp_path: Path) -> None:
    def step(state: Any, batch: Any) -> Any:
        return state + 1.0, {"loss": batch.mean() + state, "matrix": batch}

    program = ls.training.Program(step, strategy=ls.distribute.OneDeviceStrategy("/cpu:0"))
    data = ls.data.Dataset.from_tensor_slices(X).batch(8)
    program.fit(np.float32(0), data, epochs=2, callbacks=[ls.callbacks.RunReport(tmp_path)], verbose=0)
    run = newest(tmp_path)
    assert list(run.curves()) == ["loss"] and run.step == 16
    assert run.chief.last.trains[0]["call"] == "Program.fit"


def test_loops_of_ones_own_leave_theirs(tmp_path: Path) -> None:
    strategy = ls.distribute.OneDeviceStrategy("/cpu:0")
    with ls.training.record(strategy, tmp_path) as run:
        for step in range(1, 6):
            run.log(step, loss=np.float32(1 / step), text="left out")
    found = newest(tmp_path)
    assert found.curves() == {"loss": [(step, pytest.approx(1 / step)) for step in range(1, 6)]}
    assert found.step == 5 and (tmp_path / "report.html").exists()
    with pytest.raises(ArgumentError, match="log_dir"), ls.training.record(strategy, ""):
        pass


def test_a_model_of_plain_keras_is_refused(tmp_path: Path) -> None:
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    with pytest.raises(UnsupportedError, match="belongs to a strategy"):
        plain.fit(X, Y, verbose=0, callbacks=[ls.callbacks.RunReport(tmp_path)])
    with pytest.raises(ArgumentError, match="log_dir"):
        ls.callbacks.RunReport("")


PROGRAM = """
import os, pathlib, sys, time
import lockstep as ls
import keras, numpy as np

strategy = ls.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")


class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if not strategy.is_chief and epoch == 1 and os.environ["LOCKSTEP_GENERATION"] == "1":
            os.kill(os.getpid(), 9)
        if not strategy.is_chief and epoch == 2:
            deadline = time.monotonic() + 90
            while "waits for worker 1" not in records():
                assert time.monotonic() < deadline, records()
                time.sleep(0.1)


directory = sys.argv[1]


def records():
    # What has been written of this run: the other one notes for whom it waits.
    return "".join(path.read_text() for path in pathlib.Path(directory).rglob("worker-0.jsonl"))


callbacks = [ls.callbacks.TensorBoard(directory), ls.callbacks.BackupAndRestore(directory + "/backup"), Slow()]
x = np.ones((32, 3), "float32")
model.fit(x, x[:, :1], batch_size=8, epochs=4, verbose=0, callbacks=callbacks)
"""


@pytest.mark.cluster
@pytest.mark.timed
def test_two_workers_a_restart_and_a_slow_one(tmp_path: Path) -> None:
    program, log_dir = tmp_path / "train.py", tmp_path / "logs"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers=2", "--max-restarts=1", "--restart-delay=0"]
    done = subprocess.run(
        [*command, str(program), str(log_dir)], env=environment(), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Report: {log_dir / 'report.html'}" in done.stderr
    # While it waits, the terminal says for whom.
    assert "worker 0 waits for worker 1" in done.stdout + done.stderr, done.stdout + done.stderr
    run = newest(log_dir)
    assert list(run.tasks) == ["worker 0", "worker 1"] and len(run.chief.sessions) == 2
    (restart,) = run.restarts()
    assert (restart["task"], restart["cause"]) == ("worker 1", "killed by SIGKILL") and restart["seconds"] > 0
    assert run.status(0)[0] == "finished"
    assert [x for x, _ in run.epoch_curves()["loss"]] == [1, 2, 3, 4]
    assert any("waits for worker 1" in note["text"] for note in run.notes())
    text = (log_dir / "report.html").read_text()
    assert "killed by SIGKILL" in text and "--max-restarts=1" in text


def test_an_estimator_leaves_one_in_its_model_dir_and_a_second_call_goes_on_in_it(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = keras.ops.mean((keras.layers.Dense(1)(features) - labels) ** 2)
        train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD(0.01))
        return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn() -> Any:
        return ls.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(8)

    config = ls.estimator.RunConfig(train_distribute=ls.distribute.OneDeviceStrategy("/cpu:0"))
    estimator = ls.estimator.Estimator(model_fn, str(tmp_path), config)
    estimator.train(input_fn, max_steps=10)
    estimator.train(input_fn, max_steps=20)
    run = newest(tmp_path)
    assert run.step == 20 and len(run.chief.sessions) == 1
    assert [t["call"] for t in run.chief.last.trains] == ["Estimator.train"] * 2
    assert run.chief.last.trains[1]["restored"] and "loss" in run.curves()
    assert run.chief.last.spent["checkpoints"] > 0 and (tmp_path / "report.html").exists()
