"""Faults that the training program does to itself, each once in the life of the job."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.chaos.schedule import DAMAGE, SIGNALS

DIRECTORY = Path(os.environ["CHAOS_DIRECTORY"])
_SLOW_SECONDS = 2.0
# Steps take long enough for a fault to come between two of them.
_PACE_SECONDS = 0.01


def task_name() -> str:
    """The task that TF_CONFIG names."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    return f"{task['type']} {task['index']}"


def note(name: str, line: str) -> None:
    """Appends a line to a file, in one write: a killed process leaves whole lines. A full disk has room for it."""
    file = os.open(DIRECTORY / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits[1], limits[1]))
        os.write(file, f"{line}\n".encode())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        os.close(file)


def arrive() -> None:
    """Says which process this task is."""
    note(f"pids {task_name()}", str(os.getpid()))


def begins(kind: str, step: int) -> bool:
    """Whether a fault of this kind, of this task, is due at a step and has not been."""
    for number, fault in enumerate(json.loads((DIRECTORY / "plan.json").read_text())):
        if fault["kind"] == kind and fault["victim"] == task_name() and step >= fault["step"]:
            try:
                os.close(os.open(DIRECTORY / f"done {number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
    return False


def await_disturbance(step: int) -> None:
    """Stays between two steps until what the harness does to this task, at once after the step, has begun."""
    for number, fault in enumerate(json.loads((DIRECTORY / "plan.json").read_text())):
        if fault["kind"] in (*SIGNALS, *DAMAGE) and fault["victim"] == task_name() and not fault["seconds"]:
            while 0 < fault["step"] <= step and not (DIRECTORY / f"done {number}").exists():
                time.sleep(0.005)


def batch_of(step: int, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What reading the batch of a step gives: sometimes nothing, late, or nonsense."""
    time.sleep(_PACE_SECONDS)
    if begins("slow input", step):
        time.sleep(_SLOW_SECONDS)
    if begins("raising input", step):
        raise OSError(errno.EIO, "the input cannot be read, on purpose")
    if begins("NaN", step):
        return {**features, "x": np.full_like(features["x"], np.nan)}
    return features


def disturb_writing(step: int) -> None:
    """From this step on, no checkpoint of this process can be written."""
    if begins("full disk", step):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    if begins("EIO", step):
        os.fsync = _failing


def _failing(*_: Any) -> None:
    print("fsync fails, on purpose", file=sys.stderr)
    raise OSError(errno.EIO, os.strerror(errno.EIO))
