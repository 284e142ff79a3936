"""Runs the job under the supervisor, and disturbs it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.schedule import DAMAGE, SIGNALS, Fault
from tests.support.cluster import environment

RUN_SECONDS = 300.0
_POLL_SECONDS = 0.01
# A stopped process is continued: sometimes before anybody has noticed, sometimes long after it was given up.
_SHORT_STOP, _LONG_STOP = 0.7, 12.0
_MARK = "CHAOS_DIRECTORY"


@dataclass(frozen=True)
class Job:
    """A job's directory, and how it ended.

    Attributes:
        directory: Holds `model`, `logs`, `plan.json`, and what the tasks have noted.
        code: The supervisor's exit code; `None` if it had to be killed.
        seconds: How long it took.
        output: What the supervisor has printed.
    """

    directory: Path
    code: int | None
    seconds: float
    output: str


def run(directory: Path, faults: Sequence[Fault], workers: int, has_evaluator: bool) -> Job:
    """Runs the job in a new directory, to its end."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps([asdict(fault) for fault in faults]))
    command = [
        *(sys.executable, "-m", "lockstep._launch", "run", f"--workers={workers}"),
        *(
            "--max-restarts=8",
            "--max-preemptions=8",
            f"--log-dir={directory / 'logs'}",
            f"--report={directory / 'report'}",
        ),
        *(("--evaluator",) if has_evaluator else ()),
        *("-m", "tests.chaos.program", str(directory / "model")),
    ]
    settings = {
        _MARK: str(directory),
        "LOCKSTEP_SILENCE_TIMEOUT": "5",
        "TMPDIR": str(_make_directory(directory / "tmp")),
    }
    began = time.monotonic()
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(command, env=environment(**settings), stdout=output, stderr=subprocess.STDOUT)
        try:
            code = _see_through(process, [_Disturbance(directory, n, f) for n, f in enumerate(faults)], began)
        finally:
            process.kill()
            process.wait()
    return Job(directory, code, time.monotonic() - began, (directory / "output").read_text(errors="replace"))


def recoveries(directory: Path) -> list[dict[str, float]]:
    """Returns the seconds from each failure to the first new step, in all ("seconds") and by stage."""
    lines = [json.loads(line) for line in _read(directory / "report").splitlines()]
    stages = ("seconds", "detect", "wait", "restart", "build", "restore", "compile")
    return [{s: line[s] for s in stages if s in line} for line in lines if line["event"] == "recovery"]


def orphans(directory: Path) -> list[int]:
    """Returns the processes of a job that are still there."""
    wanted = f"{_MARK}={directory}".encode()
    return [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/environ") if wanted in _read(p).split(b"\0")]


def _see_through(process: subprocess.Popen[bytes], disturbances: list[_Disturbance], began: float) -> int | None:
    while process.poll() is None:
        for disturbance in disturbances:
            disturbance.look(time.monotonic())
        if time.monotonic() - began > RUN_SECONDS:
            return None
        time.sleep(_POLL_SECONDS)
    return process.returncode


class _Disturbance:
    """A fault that comes from outside: waits for its moment, does its work once."""

    def __init__(self, directory: Path, number: int, fault: Fault) -> None:
        self._directory = directory
        self._number = number
        self._fault = fault
        self._due: float | None = None
        self._continue: tuple[float, int] | None = None
        self._is_over = fault.kind not in (*SIGNALS, *DAMAGE)

    def look(self, now: float) -> None:
        """Does what is due."""
        if self._continue is not None and now >= self._continue[0]:
            _send(self._continue[1], signal.SIGCONT)
            self._continue = None
        if self._is_over:
            return
        if self._due is None and self._is_there():
            self._due = now + self._fault.seconds
        if self._due is not None and now >= self._due:
            self._is_over = True
            self._act(now)

    def _is_there(self) -> bool:
        """Whether the victim has started, and made the step; an evaluator makes none, so the chief's count."""
        if self._pid() is None:
            return False
        counted = "worker 0" if self._fault.victim.startswith("evaluator") else self._fault.victim
        seen = _read(self._directory / f"seen {counted}").splitlines()
        return self._fault.step == 0 or (bool(seen) and int(seen[-1].split()[0]) >= self._fault.step)

    def _act(self, now: float) -> None:
        pid = self._pid()
        assert pid is not None
        (self._directory / f"done {self._number}").touch()
        if self._fault.kind in DAMAGE:
            _truncate_newest(self._directory / "model")
            _send(pid, signal.SIGKILL)
            return
        _send(pid, signal.Signals[self._fault.kind])
        if self._fault.kind == "SIGSTOP":
            self._continue = now + (_SHORT_STOP if self._fault.step % 2 else _LONG_STOP), pid

    def _pid(self) -> int | None:
        lines = _read(self._directory / f"pids {self._fault.victim}").split()
        return int(lines[-1]) if lines else None


def _truncate_newest(directory: Path) -> None:
    found = sorted(directory.glob("model.ckpt-*.npz"), key=lambda p: int(p.stem.rpartition("-")[2]))
    if found:
        os.truncate(found[-1], found[-1].stat().st_size // 2)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _make_directory(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
