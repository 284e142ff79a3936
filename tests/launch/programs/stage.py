"""What the test programs have in common: who they are, and files as events between them and the test."""

from __future__ import annotations

import json
import os
import signal  # noqa: F401  For the programs, which import all names.
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 90.0


def config() -> dict:
    return json.loads(os.environ["TF_CONFIG"])


def me() -> str:
    task = config()["task"]
    return f"{task['type']}-{task['index']}"


def mark(event: str, text: str = "") -> None:
    """Create the file of an event at once with its whole text."""
    draft = Path(f".{event}.{os.getpid()}")
    draft.write_text(text)
    draft.rename(event)


def wait_for(event: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not Path(event).exists():
        if time.monotonic() > deadline:
            sys.exit(f"{event} did not happen")
        time.sleep(0.01)


def stay() -> None:
    """Stay until a signal ends this process."""
    while True:
        # No `signal.pause`: a signal that comes just before it is not handled until the next one.
        time.sleep(0.1)


def await_end(pid: int) -> None:
    """Wait until the launcher has seen that the process of a task is gone."""
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def start_loader() -> int:
    """Start a child process that stays, as a data loader does, and return its number."""
    code = "import signal\nwhile True: signal.pause()"
    return subprocess.Popen([sys.executable, "-S", "-c", code]).pid


def report(message: str, *, at: float, secondary: bool = False) -> None:
    """Write the error file, as the library does for a task that fails."""
    record = {
        "task": me().replace("-", " "),
        "time": at,
        "type": "ValueError",
        "message": message,
        "traceback": f"Traceback (most recent call last):\n  reported by {me()}\nValueError: {message}\n",
        "secondary": secondary,
    }
    Path(os.environ["LOCKSTEP_ERROR_FILE"]).write_text(json.dumps(record))
