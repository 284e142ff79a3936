"""Time limits of every wait, in seconds, from the environment."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields

from lockstep.errors import ArgumentError

_VARIABLES = {
    "join": "LOCKSTEP_JOIN_TIMEOUT",
    "peer": "LOCKSTEP_PEER_TIMEOUT",
    "silence": "LOCKSTEP_SILENCE_TIMEOUT",
    "leave": "LOCKSTEP_LEAVE_TIMEOUT",
    "grace": "LOCKSTEP_GRACE",
    "progress": "LOCKSTEP_PROGRESS_TIMEOUT",
    "compile": "LOCKSTEP_COMPILE_TIMEOUT",
}


@dataclass(frozen=True)
class Limits:
    """How long this task waits for others before it gives up and says who is missing.

    Attributes:
        join: For all tasks to arrive, from this task's start.
        peer: For a task that is alive to reach the same call (`fit`, the next batch, ...).
        silence: Without a sign of life of a task, after which it counts as dead or stopped.
        leave: At the end of the program, for tasks that are alive and still working.
        grace: From a request to end (SIGTERM) to the end of the process. Kubernetes and Slurm kill after 30.
        progress: For this task's main thread, in training, to go on: in a callback, or reading its input.
        compile: The same while it is in the call of a step, which may have to be compiled.
    """

    join: float = 300.0
    peer: float = 600.0
    silence: float = 60.0
    leave: float = 3600.0
    grace: float = 25.0
    progress: float = 900.0
    compile: float = 3600.0

    @classmethod
    def from_environment(cls) -> Limits:
        """Reads `LOCKSTEP_JOIN_TIMEOUT` and its siblings; `ArgumentError` unless each is a positive number."""
        given = {f.name: os.environ.get(_VARIABLES[f.name]) for f in fields(cls)}
        return cls(**{name: _seconds(_VARIABLES[name], text) for name, text in given.items() if text})


def _seconds(variable: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentError(
            f"{variable} must be a positive number of seconds. Received: {text!r}. Example: {variable}=120"
        )
    return value
