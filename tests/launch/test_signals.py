"""What ends the launcher ends everything."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.launch.staging import PATIENCE, Stage, eventually, is_alive

STAYING = "mark(me(), f'{os.getpid()} {start_loader()}')\nstay()"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STAYING


def started(stage: Stage, source: str, *options: object) -> tuple[subprocess.Popen[str], list[int]]:
    """Start two workers, and return the launcher and all processes under it once they run."""
    stage.program(source)
    launcher = stage.start_command("--workers", 2, *options, "program.py")
    return launcher, stage.await_pids("worker-0", "worker-1")


def assert_gone(pids: Sequence[int]) -> None:
    eventually(lambda: not any(map(is_alive, pids)), "all processes are gone")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_tasks(stage: Stage, number: signal.Signals) -> None:
    launcher, pids = started(stage, STAYING)
    launcher.send_signal(number)
    result = stage.finish(launcher)
    assert result.returncode == 128 + number
    assert f"[lockstep] Received {number.name}: ending all tasks." in result.stderr
    assert "failed" not in result.stderr
    assert_gone(pids)


def test_a_signal_reaches_the_tasks_as_a_request(stage: Stage) -> None:
    launcher, pids = started(
        stage,
        """
        def save(number, frame):
            mark(f"saved-{me()}")
            sys.exit(0)

        signal.signal(signal.SIGTERM, save)
        mark(me(), str(os.getpid()))
        stay()
        """,
    )
    launcher.send_signal(signal.SIGTERM)
    assert stage.finish(launcher).returncode == 128 + signal.SIGTERM
    assert {path.name for path in stage.directory.glob("saved-*")} == {"saved-worker-0", "saved-worker-1"}
    assert_gone(pids)


def test_a_second_interrupt_kills_at_once(stage: Stage) -> None:
    launcher, pids = started(stage, STUBBORN, "--grace", 10 * PATIENCE)
    launcher.send_signal(signal.SIGINT)
    stage.await_line(launcher, "Ctrl-C kills them at once")
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(PATIENCE) == 128 + signal.SIGINT  # Less than the grace.
    assert_gone(pids)


def test_an_ignored_signal_stays_ignored(stage: Stage) -> None:
    stage.program("mark(me())\nwait_for('go')")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        launcher = stage.start_command("--workers", 1, "program.py")
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    stage.await_event("worker-0")
    launcher.send_signal(signal.SIGHUP)
    stage.mark("go")
    assert stage.finish(launcher).returncode == 0


def test_an_interrupt_ends_the_wait_for_the_evaluator(stage: Stage) -> None:
    stage.program("if me() == 'evaluator-0':\n    mark(me(), str(os.getpid()))\n    stay()")
    launcher = stage.start_command("--workers", 1, "--evaluator", "program.py")
    pids = stage.await_pids("evaluator-0")
    launcher.send_signal(signal.SIGINT)
    assert stage.finish(launcher).returncode == 128 + signal.SIGINT
    assert_gone(pids)


@pytest.mark.parametrize("source", [STAYING, STUBBORN], ids=["willing", "stubborn"])
def test_a_killed_launcher_leaves_nothing(stage: Stage, source: str) -> None:
    launcher, pids = started(stage, "mark('errors-' + me(), os.environ['LOCKSTEP_ERROR_FILE'])\n" + source)
    everything = [*pids, *children_of(launcher.pid)]
    assert len(everything) == 4 + 3  # two tasks, each with a child; the tasks once more, and the warden
    launcher.kill()
    launcher.wait(PATIENCE)
    assert_gone(everything)
    assert not Path(stage.await_event("errors-worker-0")).parent.exists()


def test_a_killed_launcher_and_a_killed_warden_leave_no_task(stage: Stage) -> None:
    launcher, pids = started(stage, "mark(me(), str(os.getpid()))\nstay()")
    (warden,) = set(children_of(launcher.pid)) - set(pids)
    os.kill(warden, signal.SIGKILL)
    launcher.kill()
    launcher.wait(PATIENCE)
    assert_gone(pids)


def test_a_killed_warden_does_not_disturb_the_run(stage: Stage) -> None:
    stage.program("mark(me(), str(os.getpid()))\nwait_for('go')")
    launcher = stage.start_command("--workers", 1, "program.py")
    (task,) = stage.await_pids("worker-0")
    (warden,) = set(children_of(launcher.pid)) - {task}
    os.kill(warden, signal.SIGKILL)
    stage.mark("go")
    assert stage.finish(launcher).returncode == 0


def test_the_warden_ends_with_a_normal_run(stage: Stage) -> None:
    stage.program("mark(me(), str(os.getpid()))\nwait_for('go')")
    launcher = stage.start_command("--workers", 1, "program.py")
    stage.await_event("worker-0")
    children = children_of(launcher.pid)
    assert len(children) == 2
    stage.mark("go")
    assert stage.finish(launcher).returncode == 0
    assert not any(map(is_alive, children))
