"""Records of a run on the disk: JSON lines, a file for each task and one for the launcher, below the log directory."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from lockstep.errors import DataNotFoundError

_log = logging.getLogger("lockstep")
# Below the log directory, which TensorBoard and an Estimator also write to.
DIRECTORY = "report"
PAGE = "report.html"
LAUNCHER = "launcher"
# A line that is kept is written at once, unless so many were in the last second.
_WRITES_PER_SECOND = 10
# One for all lines: json.dumps makes a new one in each call with settings of its own.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

Record: TypeAlias = dict[str, Any]
"""A line of a record: "event", "at" (seconds since the epoch), and what the event tells."""


def records_of(log_dir: str | os.PathLike[str]) -> Path:
    """Returns the directory with the records of the runs that log to `log_dir`."""
    return Path(log_dir) / DIRECTORY


def path_of(log_dir: str | os.PathLike[str], name: str) -> Path:
    """Returns the record of a task ("worker 0") or of the launcher."""
    return records_of(log_dir) / f"{name.replace(' ', '-')}.jsonl"


class RecordFile:
    """Appends lines to one record.

    Lines reach the file by whole ones, in a `write` to a file opened for appending: a process that is killed leaves
    whole lines, and at most the last one cut short. A record that cannot be written ends with a warning, and training
    goes on.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._was_open = False
        self._is_lost = False
        # The sampling thread and the main thread write.
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._allowance = float(_WRITES_PER_SECOND)
        self._counted_at = time.monotonic()

    def append(self, record: Mapping[str, Any]) -> None:
        """Appends one line, after what was kept before it; values that are not finite become text, as JSON demands."""
        line = _line_of(record)
        with self._lock:
            self._lines.append(line)
            self._write()

    def keep(self, record: Mapping[str, Any]) -> None:
        """Appends one line, which stays in this process until the next one is appended if ten came in the last second.

        For events that may be many in a second, such as epochs of a small data set: writing each by itself would cost
        more than some of them take. A process that is killed loses no others.
        """
        line = _line_of(record)
        with self._lock:
            self._lines.append(line)
            now = time.monotonic()
            refilled = self._allowance + (now - self._counted_at) * _WRITES_PER_SECOND
            self._allowance, self._counted_at = min(refilled, _WRITES_PER_SECOND), now
            if self._allowance >= 1:
                self._allowance -= 1
                self._write()

    def _write(self) -> None:
        """Writes all lines that are there; called with the lock held."""
        text = "".join(self._lines)
        self._lines.clear()
        if not self._is_lost:
            try:
                if self._descriptor is None:
                    # O_APPEND: the system moves to the end with each write, so that a restart overwrites nothing of a
                    # process before it that still writes.
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                    if not self._was_open:
                        self.path.parent.mkdir(parents=True, exist_ok=True)
                    self._descriptor = os.open(self.path, flags, 0o644)
                    if not self._was_open and os.fstat(self._descriptor).st_size and not _ends_with_newline(self.path):
                        # Somebody was killed while writing: the next line must not continue that one.
                        text = "\n" + text
                    self._was_open = True
                # Past Python's buffers: what is written here survives a SIGKILL of the process. No fsync: a power cut
                # may cost the last lines, and nobody waits for the disk once a second.
                os.write(self._descriptor, text.encode())
            except OSError as error:
                self._is_lost = True
                _log.warning(
                    "The record of this run, %s, ends here: %s. Training goes on without it; the report will lack the "
                    "rest. Free space, or log to a directory that can be written to.",
                    self.path,
                    error.strerror,
                )

    def close(self) -> None:
        """Closes the file; a later line opens it again."""
        with self._lock:
            if self._lines:
                self._write()
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None


class RecordReader:
    """Reads the lines of a record that are new since the last time, for who watches while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read(self) -> list[Record]:
        """Returns the new whole lines; lines that are no JSON object are left out."""
        try:
            # In binary: a position counts bytes, and a line that is cut within a character could not be decoded.
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        # What follows the last newline is being written just now: it is read, whole, the next time.
        whole, newline, _ = data.rpartition(b"\n")
        self._position += len(whole) + len(newline)
        return [record for line in whole.splitlines() if (record := _parse(line)) is not None]


def read_all(log_dir: str | os.PathLike[str]) -> dict[str, list[Record]]:
    """Returns the lines of all records of a log directory, by task.

    Raises:
        DataNotFoundError: If no run has left a record there.
    """
    found = {path.stem.replace("-", " "): RecordReader(path).read() for path in record_paths(log_dir)}
    if not found:
        raise DataNotFoundError(
            f"A report is made of the records in the subdirectory {DIRECTORY!r} of a run's log directory. Received: "
            f"{os.fspath(log_dir)!r}, which has none. Give the directory of lockstep run --log-dir, of a TensorBoard "
            "or RunReport callback, or an Estimator's model_dir."
        )
    return found


def record_paths(log_dir: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields the records of a log directory, in the order of their names."""
    yield from sorted(records_of(log_dir).glob("*.jsonl"))


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "event" in record and "at" in record else None


def _line_of(record: Mapping[str, Any]) -> str:
    """Returns a record as a line of JSON."""
    # Python's default writes NaN and Infinity, which are no JSON: other readers refuse the whole line. A value that
    # `_plain` lets through is an error, and not such a line.
    try:
        return _ENCODER.encode(record) + "\n"
    except ValueError:
        return _ENCODER.encode(_plain(record)) + "\n"


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it: numbers that are not finite as "nan", "inf" and "-inf"."""
    if isinstance(value, float):
        # An infinity or a NaN less itself is NaN: one comparison finds all that JSON cannot hold.
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
