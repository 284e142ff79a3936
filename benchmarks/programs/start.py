"""Seconds from the start of a program's processes to the first step that its progress bar shows.

The program is not changed: it writes to a pseudo-terminal, where Keras draws a moving bar, and that is read.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness.processes import Failed

# "12/938", not the "Epoch 1/3" above it.
_STEP = re.compile(rb"(?<!Epoch )(?<![\d/])[1-9]\d*/\d{2,}\b")


def seconds_to_first_step(
    command: Sequence[str], tasks: Sequence[Mapping[str, str]], cwd: str, complete: bool, limit: float = 240.0
) -> float:
    """Starts the program once for each of `tasks`, which are variables; the first one's bar is read.

    Args:
        command: The program.
        tasks: Variables of each process, beside this one's.
        cwd: Directory that it runs in.
        complete: Whether to let it run to its end, so that it leaves its caches behind, or end it at its first step.
        limit: Seconds until it is given up.

    Raises:
        Failed: If no step is shown, with what was.
    """
    terminal, theirs = pty.openpty()
    start = time.perf_counter()
    processes = [_start(command, task, cwd, theirs if i == 0 else subprocess.DEVNULL) for i, task in enumerate(tasks)]
    os.close(theirs)
    try:
        taken = _read_to_step(terminal, start, limit)
        if complete:
            _read_to_end(terminal, processes, start + limit)
        return taken
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        os.close(terminal)


def _start(command: Sequence[str], task: Mapping[str, str], cwd: str, output: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **task, "COLUMNS": "80", "TERM": "xterm"}
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output if output > 0 else None,
    )


def _read_to_step(terminal: int, start: float, limit: float) -> float:
    seen = b""
    while not _STEP.search(_plain(seen)):
        more = _read(terminal, start + limit)
        if more is None:
            raise Failed(f"no step was shown: {_plain(seen)[-400:].decode(errors='replace')}")
        seen += more
    return time.perf_counter() - start


def _read_to_end(terminal: int, processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> None:
    while _read(terminal, deadline) is not None:
        pass
    for process in processes:
        if process.wait(max(1.0, deadline - time.perf_counter())):
            raise Failed(f"the program ended with {process.returncode}")


def _read(terminal: int, deadline: float) -> bytes | None:
    """Returns what has been written, or `None` at the end or when time is over."""
    readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.perf_counter()))
    try:
        return (os.read(terminal, 65536) or None) if readable else None
    except OSError:  # Linux, when the other side has been closed.
        return None


def _plain(text: bytes) -> bytes:
    """Without colours."""
    return re.sub(rb"\x1b\[[0-9;]*[A-Za-z]", b"", text)
