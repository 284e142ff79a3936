"""The report of a failure, for the launcher."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep._runtime import failure
from lockstep._runtime.failure import is_agreed, mark_agreed, write_error_file
from lockstep.errors import MismatchError
from tests.runtime.jobs import Job


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where reports go."""
    path = tmp_path / "error.json"
    monkeypatch.setenv("LOCKSTEP_ERROR_FILE", str(path))
    return path


def _write(message: str = "the cause", secondary: bool = False) -> None:
    write_error_file("worker 1", "ValueError", message, "Traceback: ...", secondary)


def test_a_report(path: Path) -> None:
    began = time.time()
    _write()
    report = json.loads(path.read_text())
    assert began <= report.pop("time") <= time.time()
    assert report == {
        "task": "worker 1",
        "type": "ValueError",
        "message": "the cause",
        "traceback": "Traceback: ...",
        "secondary": False,
    }
    assert os.listdir(path.parent) == ["error.json"], "nothing else is left"


def test_the_first_report_of_a_process_stays(path: Path) -> None:
    _write("the cause")
    _write("a consequence", secondary=True)
    assert json.loads(path.read_text())["message"] == "the cause"


def test_nobody_asks_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _write()
    monkeypatch.setenv("LOCKSTEP_ERROR_FILE", "")
    _write()
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_ERROR_FILE", str(tmp_path / "absent" / "error.json"))
    _write()


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (None, "this process"),
        ('{"task": {"type": "worker", "index": 3}}', "worker 3"),
        ("{", "this process"),
        ("[]", "this process"),
        ('{"task": "worker"}', "this process"),
        ('{"task": {"type": "worker"}}', "this process"),
    ],
)
def test_whose_report_it_is(config: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    assert failure._task_name() == name


class _Slotted(Exception):
    __slots__ = ()


def test_errors_that_all_have_are_marked() -> None:
    error = MismatchError("all the same")
    assert not is_agreed(error)
    assert mark_agreed(error) is error
    assert is_agreed(error)
    assert not is_agreed(MismatchError("another"))


def test_the_hook_is_installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: seen.append(args))
    failure.install()
    first = sys.excepthook
    failure.install()
    assert sys.excepthook is first


def test_an_exception_of_any_program_is_reported(job: Job) -> None:
    """Also before there is a cluster, and beside a hook that the program has installed."""
    task = job.start(
        """
        import sys
        sys.excepthook = lambda *args: print("hooked", file=sys.stderr)
        import lockstep
        raise KeyError("lost")
        """,
        ["127.0.0.1:1", "127.0.0.1:2"],
        1,
    )
    assert task.wait() == 1
    assert task.err == "hooked\n"
    report = json.loads(task.report.read_text())
    assert (report["task"], report["type"], report["message"]) == ("worker 1", "KeyError", "'lost'")
    assert 'raise KeyError("lost")' in report["traceback"]
    assert report["secondary"] is False
