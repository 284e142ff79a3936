"""Event files, which TensorBoard reads, without TensorFlow."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from lockstep.data import TFRecordWriter
from lockstep.errors import ArgumentError
from lockstep.summary import _hparams, _protos
from lockstep.summary._protos import messages

_log = logging.getLogger("lockstep")
_count = itertools.count()
# The first record of every file, by which TensorBoard knows its format.
_VERSION = "brain.Event:2"


def warn(path: str | os.PathLike[str], error: Exception) -> None:
    """Warns that a log could not be written: a full disk costs logs, and no training."""
    _log.warning(
        "%s could not be written: %s. Training goes on without it. Free space, or log to a directory that can be "
        "written to.",
        os.fspath(path),
        str(error).removesuffix("."),
    )


@contextlib.contextmanager
def goes_on_without(path: str | os.PathLike[str]) -> Generator[None]:
    """Turns an error of writing logs to `path` into a warning: what is logged must not end a training."""
    try:
        yield
    # JAX' profiler raises RuntimeError for each status of its own.
    except (OSError, RuntimeError) as error:
        warn(path, error)


class EventFile:
    """A new event file in a directory, created by the first thing that is written.

    Writing copies into memory; the file follows when there is much of it, after some time, and with `flush` and
    `close`. What is left is written when the object or the process ends. Several may write to one directory, from any
    thread.

    A file that cannot be written, such as on a full disk, ends no training: the log warns once, with its path, and what
    is written until `close` is dropped.

    Args:
        directory: The directory of the file; it is created too.
        suffix: The end of the file's name.
        flush_secs: Seconds after which, at the latest, the next write makes all before visible to readers.
    """

    def __init__(self, directory: str | os.PathLike[str], suffix: str = "", flush_secs: float = 120) -> None:
        self._directory = self._path = Path(directory)
        self._suffix = suffix
        self._flush_secs = flush_secs
        self._lock = threading.Lock()
        self._close: weakref.finalize[[], EventFile] | None = None
        self._records: TFRecordWriter | None = None
        self._flushed = 0.0
        self._is_lost = False

    def __enter__(self) -> Self:
        """Returns the file, which is closed at the end of the block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Closes the file."""
        self.close()

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Writes one number."""
        self.add_summary(_protos.scalar_value(tag, np.asarray(value)), step)

    def histogram(self, tag: str, values: np.ndarray, step: int) -> None:
        """Writes how values of any shape are distributed; where some are not finite, only the others."""
        self.add_summary(_protos.histogram_value(tag, values), step)

    def image(self, tag: str, picture: np.ndarray, step: int) -> None:
        """Writes a picture of shape (height, width, channels), of values from 0 to 255."""
        self.add_summary(_protos.image_value(tag, picture.astype("uint8")), step)

    def text(self, tag: str, text: str, step: int) -> None:
        """Writes a text, which TensorBoard renders as Markdown."""
        self.add_summary(_protos.text_value(tag, [text.encode()], "text", ()), step)

    def hparams(self, values: Mapping[str, Any], group: str = "") -> None:
        """Writes the hyperparameters of a run: numbers, texts or booleans by name; once, before its end.

        TensorBoard shows them beside the scalars of this directory and of the directories in it.

        Args:
            values: The hyperparameters.
            group: Runs with one group are repetitions of one experiment. Default: each is one of its own.

        Raises:
            ArgumentError: If a value is something else.
        """
        self.add_summary(_hparams.session_start(values, group), 0)

    def end_hparams(self, status: Literal["SUCCESS", "FAILURE"] = "SUCCESS") -> None:
        """Writes how the run with these hyperparameters has ended."""
        self.add_summary(_hparams.session_end(status), 0)

    def text_of_plugin(self, tag: str, plugin: str, text: str, step: int) -> None:
        """Writes a text that one of TensorBoard's plugins understands."""
        self.add_summary(_protos.text_value(tag, [text.encode()], plugin), step)

    def graph(self, graph_def: bytes) -> None:
        """Writes a serialized `GraphDef`, which the Graphs tab opens with."""
        self.add_event(messages("event").Event(wall_time=time.time(), graph_def=graph_def))

    def add_summary(self, summary: Any, step: int) -> None:
        """Writes a `Summary`; an empty one is left out."""
        if summary.value:
            self.add_event(messages("event").Event(wall_time=time.time(), step=int(step), summary=summary))

    def add_event(self, event: Any) -> None:
        """Writes an `Event`."""
        record = event.SerializeToString()
        with self._lock, self._dropping_on_error():
            # The warning has been given once.
            if self._is_lost:
                return
            self._writer().write(record)
            if time.monotonic() >= self._flushed + self._flush_secs:
                self._flush()

    def flush(self) -> None:
        """Makes what was written visible to readers."""
        with self._lock, self._dropping_on_error():
            self._flush()

    def close(self) -> None:
        """Closes the file; what is written later goes to a new one."""
        with self._lock:
            if self._close is not None:
                self._close()
            self._close = self._records = None
            self._is_lost = False

    @contextlib.contextmanager
    def _dropping_on_error(self) -> Generator[None]:
        """Drops the file if it cannot be opened or written, also what follows: it would come after half a record."""
        try:
            yield
        except (OSError, ArgumentError) as error:
            warn(self._path, error)
            self._is_lost = True
            if self._close is not None and self._close.detach() and self._records is not None:
                with contextlib.suppress(OSError):
                    self._records.close()
            self._close = self._records = None

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        if self._records is not None:
            self._records.flush()

    def _writer(self) -> TFRecordWriter:
        if self._records is None:
            # Tasks of a job may share a directory, and a start of the process. Who reads files in the order of their
            # names, as TensorBoard does, reads those of a process as they were begun.
            process = f"{socket.gethostname()}.{os.getpid()}"
            name = f"events.out.tfevents.{int(time.time()):010d}.{process}.{next(_count):06d}{self._suffix}"
            self._path = self._directory / name
            self._directory.mkdir(parents=True, exist_ok=True)
            self._records = TFRecordWriter(self._path)
            # Also at the end of the process, where `close` was never called.
            self._close = weakref.finalize(self, partial(_close_records, self._records, self._path))
            version = messages("event").Event(wall_time=time.time(), file_version=_VERSION)
            self._records.write(version.SerializeToString())
            self._flush()
        return self._records


def _close_records(records: TFRecordWriter, path: Path) -> None:
    try:
        records.close()
    except OSError as error:
        warn(path, error)
