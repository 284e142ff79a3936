"""Warden: a process that outlives the launcher, to kill the tasks of a launcher that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_PROGRAM = Path(__file__).with_name("warden_process.py")
# Seconds to kill all groups and remove the directory.
_PATIENCE = 5.0


class Warden:
    """A process at the reading end of a pipe whose writing end only the launcher has.

    It learns which process groups exist, and kills them when the pipe ends, which is when the launcher does. A task
    enlists itself before it runs its program, so that no process exists that the warden does not know.
    """

    def __init__(self, directory: Path) -> None:
        """Starts the warden; `directory` is removed with the groups."""
        # Isolated (-I -S): a sitecustomize or PYTHONPATH of the user must not keep it from starting.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # A line that is buffered would be lost with the launcher.
            start_new_session=True,  # Ctrl-C and a closed terminal must not reach it.
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin

    def enlist(self) -> None:
        """Registers the group that the calling process, forked from the launcher, leads."""
        # Between fork and exec: if the warden has gone, the write must fail and not kill the task.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._tell(f"+{os.getpid()}\n")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def discharge(self, group: int) -> None:
        """Takes back a group that has ended: its number may be given to other processes."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        try:
            self._pipe.write(line.encode())
        except OSError:
            # Somebody has killed the warden; on Linux the kernel still ends the tasks with the launcher.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Lets the warden end: it kills what is still enlisted."""
        self._pipe.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
