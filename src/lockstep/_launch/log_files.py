"""The raw output of each task in a file of its own."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO

from lockstep._launch.task import Task
from lockstep.errors import ArgumentError


class LogFiles:
    """Writes what tasks print to files; a file that cannot be written any more is given up, once, with a message."""

    def __init__(self, files: dict[Task, BinaryIO]) -> None:
        self._files = files

    def write(self, task: Task, data: bytes) -> str | None:
        """Append `data` to the log of `task`; return a message if that log ends here."""
        if task not in self._files:
            return None
        try:
            self._files[task].write(data)
        except OSError as error:
            return f"The log of {task} ends here, {self._files.pop(task).name} cannot be written: {error.strerror}."
        return None


@contextmanager
def open_logs(directory: Path | None, tasks: Sequence[Task]) -> Generator[LogFiles]:
    """Open a log for each task in `directory`, which is made, or none without one; older logs are kept."""
    with ExitStack() as opened:
        if directory is None:
            yield LogFiles({})
        else:
            yield LogFiles({task: opened.enter_context(_opened(directory, task)) for task in tasks})


def _opened(directory: Path, task: Task) -> BinaryIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{task.stem}.log"
        _keep(path)
        return path.open("xb", buffering=0)
    except OSError as error:
        raise ArgumentError(
            f"--log-dir must be a directory that can be written to, received {str(directory)!r}: {error.strerror}. "
            "Give another one."
        ) from error


def _keep(path: Path) -> None:
    """Rename the log of an earlier run to the next free number: the highest is the latest."""
    if path.exists():
        numbered = (path.with_name(f"{path.name}.{number}") for number in count(1))
        path.rename(next(older for older in numbered if not older.exists()))
