"""The report of a failure, for the launcher."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep._engine.runtime import failure
from lockstep._engine.runtime.failure import is_agreed, mark_agreed
from lockstep._engine.runtime.launcher_files import write_error_file
from lockstep.errors import MismatchError
from tests.engine.runtime.jobs import Job


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


def test_threads_that_report_at_the_same_moment(path: Path) -> None:
    """The main thread and the heartbeat see a peer's end together: one report is written, and it is whole."""
    for round_ in range(50):
        start = threading.Barrier(4)

        def report(length: int, start: threading.Barrier = start) -> None:
            start.wait()
            _write("x" * length)

        threads = [threading.Thread(target=report, args=(length,)) for length in (10, 5_000, 100_000, 1_000_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(json.loads(path.read_text())["message"]) == {"x"}, round_
        assert os.listdir(path.parent) == ["error.json"]
        path.unlink()


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


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """`sys.excepthook` and `sys.exit` that note their calls, and the hooks of a joined process over them."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: seen.append(args))
    monkeypatch.setattr(sys, "exit", lambda *args: seen.append(args))
    monkeypatch.setattr(failure, "_failed", False)
    monkeypatch.setattr(failure, "_exit_code", 0)
    failure.install()
    yield seen
    failure.uninstall()


@pytest.mark.parametrize(("status", "code"), [((), 0), ((None,), 0), ((3,), 3), ((259,), 3), (("told",), 1)], ids=repr)
def test_the_exit_code_is_known_before_the_end(hooked: list[Any], status: tuple[Any, ...], code: int) -> None:
    sys.exit(*status)
    assert failure.exit_code() == code
    assert hooked == [status or (None,)]


def test_an_exception_that_ends_the_program_comes_to_those_who_listen(hooked: list[Any]) -> None:
    told: list[BaseException] = []
    failure.on_failure(told.append)
    error = KeyError("lost")
    assert not failure.has_failed()
    sys.excepthook(KeyError, error, None)
    assert failure.has_failed()
    assert told == [error]
    assert hooked == [(KeyError, error, None)]


def test_hooks_are_installed_once(hooked: list[Any]) -> None:
    first = sys.excepthook, sys.exit
    failure.install()
    assert (sys.excepthook, sys.exit) == first


def test_hooks_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", before := lambda *args: None)
    leave = sys.exit
    failure.install()
    assert sys.excepthook is not before and sys.exit is not leave
    failure.uninstall()
    assert sys.excepthook is before and sys.exit is leave


def test_a_hook_of_the_program_over_ours_stays_and_ours_does_nothing(hooked: list[Any]) -> None:
    """Both call what was there before."""
    ours = sys.excepthook
    told: list[BaseException] = []
    failure.on_failure(told.append)

    def theirs(*args: Any) -> None:
        ours(*args)

    sys.excepthook = theirs
    failure.uninstall()
    assert sys.excepthook is theirs
    sys.excepthook(KeyError, error := KeyError("lost"), None)
    assert hooked == [(KeyError, error, None)]
    assert (told, failure.has_failed()) == ([], False)


_FAILS = """
    import sys
    sys.excepthook = lambda *args: print("hooked", file=sys.stderr)
    import lockstep as ls
    ls.distribute.OneDeviceStrategy("/cpu:0")
    raise KeyError("lost")
"""


def test_an_exception_of_a_program_with_a_strategy_is_reported(job: Job) -> None:
    """Also of one process, and beside a hook that the program has installed."""
    task = job.start(_FAILS, ["127.0.0.1:1", "127.0.0.1:2"], 1)
    assert task.wait() == 1
    assert task.err == "hooked\n"
    report = json.loads(task.report.read_text())
    assert (report["task"], report["type"], report["message"]) == ("worker 1", "KeyError", "'lost'")
    assert 'raise KeyError("lost")' in report["traceback"]
    assert report["secondary"] is False


def test_a_strategy_that_cannot_be_made_is_reported(job: Job) -> None:
    task = job.start(
        "import lockstep as ls\nls.distribute.MultiWorkerMirroredStrategy()", [], 0, TF_CONFIG='{"cluster": []}'
    )
    assert task.wait() == 1
    assert json.loads(task.report.read_text())["type"] == "ClusterSpecError"


def test_without_a_launcher_a_process_alone_has_no_hook(job: Job) -> None:
    program = """
        import os, sys
        found = sys.excepthook, sys.exit
        del os.environ["LOCKSTEP_ERROR_FILE"]
        import lockstep as ls
        ls.distribute.OneDeviceStrategy("/cpu:0")
        print((sys.excepthook, sys.exit) == found)
    """
    task = job.start(program, [], 0)
    assert task.wait() == 0
    assert task.out == "True\n"


def test_a_process_that_has_left_the_others_has_no_hooks(job: Job) -> None:
    """What the program has registered before it has joined comes last at its end."""
    program = """
        import atexit, gc, sys
        found = sys.excepthook, sys.exit
        atexit.register(
            lambda: print("restored", (sys.excepthook, sys.exit) == found, not gc.get_freeze_count(), flush=True)
        )
        import lockstep as ls
        ls.distribute.MultiWorkerMirroredStrategy()
        print("installed", sys.excepthook != found[0], sys.exit != found[1], gc.get_freeze_count() > 0, flush=True)
        """
    for task in job.start_all(program, 2):
        assert task.wait() == 0, task.err
        assert task.out.endswith("\ninstalled True True True\nrestored True True\n")
