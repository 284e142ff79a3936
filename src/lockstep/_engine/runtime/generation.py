"""Which attempt at a job this process belongs to: processes of different attempts do not mix."""

from __future__ import annotations

import os
import re

from lockstep.errors import ArgumentError

VARIABLE = "LOCKSTEP_GENERATION"


def generation() -> int:
    """Returns what `LOCKSTEP_GENERATION` says, 0 by default; whoever starts a job again counts it up.

    Raises:
        ArgumentError: If it is not a number from 0 on.
    """
    text = os.environ.get(VARIABLE) or "0"
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ArgumentError(f"{VARIABLE} must be a number: 0, 1, 2, ... Received: {text[:100]!r}.")
    return int(text)
