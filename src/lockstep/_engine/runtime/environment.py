"""Settings of a task in its environment: flags, and the number of the attempt at the job."""

from __future__ import annotations

import os
import re

from lockstep.errors import ArgumentError

_ATTEMPT = "LOCKSTEP_GENERATION"


def attempt() -> int:
    """Returns the number of this attempt at the job: processes of different attempts do not mix.

    It is `LOCKSTEP_GENERATION`, 0 by default; whoever starts a job again counts it up.

    Raises:
        ArgumentError: If it is not a number from 0 on.
    """
    text = os.environ.get(_ATTEMPT) or "0"
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ArgumentError(f"{_ATTEMPT} must be a number: 0, 1, 2, ... Received: {text[:100]!r}.")
    return int(text)


def env_flag(name: str, meaning: str, default: bool = True) -> bool:
    """Returns whether the flag `name` in the environment is on; `meaning` says, in the error, what it does.

    Raises:
        ArgumentError: If it is neither 0 nor 1.
    """
    text = os.environ.get(name) or str(int(default))
    if text not in ("0", "1"):
        raise ArgumentError(f"{name} must be 1 ({meaning}) or 0. Received: {text!r}.")
    return text == "1"
