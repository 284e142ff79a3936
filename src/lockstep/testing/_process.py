"""The process of a task, as the test sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The end of a log that fits an error message: two tracebacks, mostly.
_SHOWN_CHARACTERS = 6000
# The task finds what the test finds, in the same places.
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from lockstep.testing._task import main; main()"


class TaskProcess:
    """A process that runs functions for a test.

    Args:
        name: Of the task, such as "worker 0".
        env: Its environment.
        log: Where its output goes.

    Attributes:
        name: Of the task.
        process: The process itself.
    """

    def __init__(self, name: str, env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._log = log
        self._printed: int | None = None
        self._is_killed = False
        # As Python has it: what PYTHONPATH names comes first.
        path = [*filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *sys.path]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(path)],
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                # Unbuffered: a line that waits in a buffer of ours is not seen by `select`.
                bufsize=0,
            )

    @property
    def is_awaited(self) -> bool:
        """True while it is to end in order: it was not killed."""
        return not self._is_killed

    @property
    def is_alive(self) -> bool:
        """True while it runs."""
        return self.process.poll() is None

    def fileno(self) -> int:
        """Returns the pipe that its answers come from."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def ask(self, request: Mapping[str, Any]) -> None:
        """Sends a request. A process that has gone does not hear it; `answer` says so."""
        assert self.process.stdin is not None
        # In one write: the task reads lines.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """Returns the next answer; for a process that has ended without one, an error that says so."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
        else:
            code = self.process.wait()
            end = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
            answer = {"error": f"The process has ended: {end}.\n"}
        self._printed = answer.get("printed")
        return answer

    def output(self) -> str:
        """Returns the end of what it has printed, without the error that its answer tells."""
        return self._log.read_bytes()[: self._printed].decode(errors="replace")[-_SHOWN_CHARACTERS:]

    def close_requests(self) -> None:
        """Sends no more requests: the process ends in order."""
        if self.process.stdin:
            self.process.stdin.close()
            self.process.stdin = None

    def kill(self) -> None:
        """Ends the process at once, with SIGKILL."""
        if self.is_alive:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._is_killed = True

    def close(self) -> None:
        """Ends the process, and closes the pipes to it."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
