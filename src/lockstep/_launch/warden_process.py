"""Program of the warden: a child of the launcher that imports nothing but the standard library."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable


def surviving(lines: Iterable[str]) -> set[int]:
    """Reads `+group` and `-group` lines until they end; return the groups that were not taken back."""
    groups: set[int] = set()
    for line in lines:
        number = int(line[1:])
        groups.add(number) if line.startswith("+") else groups.discard(number)
    return groups


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _main() -> None:
    # Only the end of the pipe ends it: a shutdown sends these to all processes, and the launcher may be the last.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for group in surviving(sys.stdin):
        _kill(group)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    _main()
