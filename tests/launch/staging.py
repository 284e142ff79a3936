"""Runs the command line as its users do: as a process, on small programs that need the standard library only."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
PROGRAMS = Path(__file__).parent / "programs"
# Processes start as many others do, on a machine that may be slow for a while.
PATIENCE = 90.0

Environment = dict[str, str] | None
Pipes = dict[str, object] | None


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return not status.parent.parent.exists() or status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until `condition` holds; fail, naming `what`, if it does not in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not in {patience} s: {what}"
        time.sleep(0.01)


class Stage:
    """A directory with a program in it, and the launcher's processes started there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: list[subprocess.Popen[str]] = []

    def program(self, source: str, name: str = "program.py") -> None:
        """Write the program; it finds the helpers of `programs/stage.py` imported."""
        text = "from __future__ import annotations\nimport os, sys, time\nfrom stage import *\n"
        (self.directory / name).write_text(text + textwrap.dedent(source))

    def run(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Call `launch` with those options in a process of its own, to its end, on the program and its arguments."""
        return self.finish(self.start(*arguments, **options))

    def start(
        self, *arguments: str, env: Environment = None, pipes: Pipes = None, **options: object
    ) -> subprocess.Popen[str]:
        """Start what `run` runs."""
        call = f"launch({['program.py', *arguments]!r}, **{options!r})"
        return self._start(["-c", f"from lockstep._launch.launcher import launch; exit({call})"], env, pipes)

    def run_command(self, *arguments: object, env: Environment = None) -> subprocess.CompletedProcess[str]:
        """Run the command line `lockstep run ARGUMENTS` to its end."""
        return self.finish(self.start_command(*arguments, env=env))

    def start_command(self, *arguments: object, env: Environment = None, pipes: Pipes = None) -> subprocess.Popen[str]:
        """Start the command line `lockstep run ARGUMENTS`."""
        return self._start(["-m", "lockstep._launch", "run", *map(str, arguments)], env, pipes)

    def _start(self, arguments: list[str], env: Environment, pipes: Pipes) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.directory,
            env={
                **os.environ,
                "TMPDIR": str(self.directory),
                "PYTHONPATH": f"{SOURCES}{os.pathsep}{PROGRAMS}",
                **(env or {}),
            },
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **(pipes or {})},
        )
        self.running.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        """Wait for the end of a started launcher."""
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def await_line(self, launcher: subprocess.Popen[str], text: str) -> str:
        """Read what a launcher prints to stderr up to the line that has `text`, and return that line."""
        assert launcher.stderr is not None
        seen: list[str] = []
        for line in launcher.stderr:
            seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"The launcher has ended without {text!r}; it has printed:\n{''.join(seen)}")

    def await_event(self, event: str) -> str:
        """Wait until a task has marked `event`, and return its text."""
        path = self.directory / event
        eventually(path.exists, event)
        return path.read_text()

    def await_pids(self, *events: str) -> list[int]:
        """Wait for events whose text is numbers of processes."""
        return [int(pid) for event in events for pid in self.await_event(event).split()]

    def mark(self, event: str) -> None:
        """Let tasks that wait for `event` go on."""
        (self.directory / event).touch()

    def close(self) -> None:
        """End what a failed test has left; the wardens see to the tasks."""
        for process in self.running:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdout, process.stderr)):
                pipe.close()
