"""Records survive what happens to their writers, and are read as the runs that they are of."""

from __future__ import annotations

import ast
import json
import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import DataNotFoundError
from lockstep.report import _files
from lockstep.report._files import RecordFile, RecordReader, read_all
from lockstep.report._run import Run, duration, runs_of, size
from lockstep.report._settings import settings
from lockstep.report._time import breakdown, waits
from tests.report import runs


def newest(log_dir: Path) -> Run:
    return runs_of(read_all(log_dir))[-1]


def test_lines_are_appended_and_a_broken_one_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "report" / "worker-0.jsonl"
    file = RecordFile(path)
    file.append({"event": "one", "at": 1.0, "loss": math.nan, "high": [math.inf]})
    file.close()
    # Killed in the middle of a line.
    with path.open("a") as cut:
        cut.write('{"event": "tw')
    after = RecordFile(path)
    after.append({"event": "three", "at": 3.0})
    after.close()
    found = RecordReader(path).read()
    assert [line["event"] for line in found] == ["one", "three"]
    assert math.isnan(float(found[0]["loss"])) and found[0]["high"] == ["inf"]


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    reader, file = RecordReader(path), RecordFile(path)
    assert reader.read() == []
    file.append({"event": "one", "at": 1.0})
    with path.open("a") as writer:
        writer.write('{"event": "two"')
        writer.flush()
        assert [line["event"] for line in reader.read()] == ["one"]
        writer.write(', "at": 2.0}\n')
    assert [line["event"] for line in reader.read()] == ["two"]
    file.close()


def test_many_lines_of_one_second_are_ten_writes_and_come_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, writes = [0.0], list[bytes]()
    monkeypatch.setattr(_files.time, "monotonic", lambda: now[0])
    write = os.write
    monkeypatch.setattr(_files.os, "write", lambda file, data: writes.append(data) or write(file, data))
    file = RecordFile(tmp_path / "a.jsonl")
    for number in range(100):
        file.keep({"event": "epoch", "at": float(number), "loss": math.nan})
    # The first ones are there at once: a process that is killed loses none of an ordinary run.
    assert len(writes) == 10
    now[0] = 2.0
    file.keep({"event": "epoch", "at": 100.0})
    file.keep({"event": "epoch", "at": 101.0})
    file.append({"event": "end", "at": 102.0})
    file.keep({"event": "epoch", "at": 103.0})
    file.close()
    assert len(writes) == 14
    assert [line["at"] for line in RecordReader(tmp_path / "a.jsonl").read()] == [float(n) for n in range(104)]


def test_a_task_that_only_writes_imports_nothing_that_draws() -> None:
    code = "import sys, lockstep.report.internal; print([m for m in sys.modules if m.startswith('lockstep.report.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == [f"lockstep.report.{name}" for name in ("_files", "_settings", "internal")]


def test_a_record_that_cannot_be_written_ends_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "report").write_text("a file is in the way")
    file = RecordFile(tmp_path / "report" / "worker-0.jsonl")
    with caplog.at_level(logging.WARNING, "lockstep"):
        file.append({"event": "one", "at": 1.0})
        file.append({"event": "two", "at": 2.0})
    assert len(caplog.messages) == 1 and "Training goes on without it" in caplog.messages[0]


def test_a_directory_without_records_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="lockstep run --log-dir"):
        read_all(tmp_path)


def test_restarts_belong_to_the_run_and_repeated_steps_count_once(tmp_path: Path) -> None:
    first = [runs.start(), runs.train(), runs.value(2, 10, 3.0), runs.value(3, 20, 2.0), runs.value(4, 30, 9.0)]
    again = [runs.start(6), runs.train(6.1), runs.value(7, 20, 1.5), runs.value(8, 40, 1.0), runs.end(9, 40)]
    run = newest(runs.write(tmp_path, worker_0=[*first, *again]))
    assert run.curves() == {"loss": [(10, 3.0), (20, 1.5), (40, 1.0)]}
    assert len(run.chief.sessions) == 2 and run.step == 40
    assert [line["cause"] for line in run.restarts()] == ["its process ended without a word"]
    assert run.status(runs.BEGIN + 1e6) == ("finished", "Finished")


def test_another_start_is_another_run_unless_it_goes_on_with_a_checkpoint(tmp_path: Path) -> None:
    restored = {"event": "restored", "at": runs.BEGIN + 206, "step": 5, "steps": 0}
    lines = [runs.start(run_id=""), runs.train(), runs.end(3)]
    lines += [runs.start(100, run_id=""), runs.train(100), runs.value(101, 5, 1.0)]
    lines += [runs.start(200, run_id=""), runs.train(200), restored, runs.value(207, 6, 0.5), runs.end(208)]
    found = runs_of(read_all(runs.write(tmp_path, this_process=lines)))
    assert [len(run.chief.sessions) for run in found] == [1, 2]
    assert found[1].earlier == 1 and found[1].curves()["loss"] == [(5, 1.0), (6, 0.5)]


def test_how_a_run_ended(tmp_path: Path) -> None:
    lines = [runs.start(), runs.train(), runs.value(2, 10, 3.0)]
    run = newest(runs.write(tmp_path / "a", worker_0=lines))
    assert run.status(runs.BEGIN + 10)[0] == "running"
    assert run.status(runs.BEGIN + 1000)[0] == "silent"
    error = runs.end(5, error={"type": "ValueError", "message": "no such\nthing"})
    failed = newest(runs.write(tmp_path / "b", worker_0=[*lines, error]))
    assert failed.status(0.0) == ("failed", "worker 0: ValueError: no such")
    failure = {"event": "failure", "at": runs.BEGIN + 5, "task": "worker 1", "cause": "exit -9", "run_id": "one"}
    launcher = [failure, {"event": "end", "at": runs.BEGIN + 6, "code": 137, "run_id": "one"}]
    killed = newest(runs.write(tmp_path / "c", worker_0=lines, launcher=launcher))
    assert killed.status(0.0)[0] == "failed"
    assert killed.restarts()[0]["cause"] == "killed by SIGKILL"


def test_time_is_divided_without_counting_compilation_twice(tmp_path: Path) -> None:
    marks = {"event": "marks", "at": runs.BEGIN + 4, "marks": {"called": runs.BEGIN + 1, "stepped": runs.BEGIN + 3}}
    spent = {"the call of a step, or its compilation": 5.0, runs.INPUT: 2.0, runs.CALLBACKS: 0.001}
    run = newest(runs.write(tmp_path, worker_0=[runs.start(), runs.train(), marks, runs.sample(9, 4, spent)]))
    assert breakdown(run.chief) == {"start": 2.0, "compile": 2.0, "input": 2.0, "step": 3.0}


def test_the_task_that_others_waited_for_is_named_with_its_place(tmp_path: Path) -> None:
    def samples(share: float) -> list[dict[str, object]]:
        return [runs.sample(t, t, {runs.CALLBACKS: share * t, runs.DEVICES: t}) for t in range(1, 42)]

    run = newest(
        runs.write(
            tmp_path,
            worker_0=[runs.start(), runs.train(), *samples(0.05)],
            worker_1=[runs.start(), runs.train(), *samples(0.55)],
        )
    )
    (wait,) = waits(run)
    assert (wait.task, wait.place) == ("worker 1", runs.CALLBACKS)
    assert wait.seconds == pytest.approx(20.0, rel=1e-6)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(-10, 10)), max_size=40))
def test_curves_go_forward_whatever_the_steps(points: list[tuple[int, float]]) -> None:
    lines = [runs.start(), runs.train(), *(runs.value(2 + i, step, y) for i, (step, y) in enumerate(points))]
    found = runs_of({"worker 0": lines})[0].curves().get("loss", [])
    steps = [x for x, _ in found]
    assert steps == sorted(set(steps))
    if points:
        assert found[-1] == points[-1]


def test_settings_hold_no_secret() -> None:
    given_ = {"LOCKSTEP_CLUSTER_SECRET": "x", "LOCKSTEP_MY_TOKEN": "x", "HOME": "x", "XLA_FLAGS": "--a", "JAX_B": "c"}
    assert settings(given_) == {"JAX_B": "c", "XLA_FLAGS": "--a"}


def test_figures_in_words() -> None:
    assert [duration(s) for s in (4.21, 200, 18_420)] == ["4.2 s", "3 min 20 s", "5 h 7 min"]
    assert [size(b) for b in (12, 1500, 2.5e9)] == ["12 B", "1.5 kB", "2.5 GB"]
    assert json.dumps(size(3e13)) == '"30 TB"'
