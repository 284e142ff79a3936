"""Writers of event files, one for each directory of a process, and summaries as protocol buffers."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar

import numpy as np

from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.summary.internal import EventFile, as_bytes, messages
from lockstep.summary.internal import protos as _protos


class FileWriter:
    """Writes summaries to a new event file; a context manager.

    Writing never waits for a disk: see `EventFile`. After `close`, the next summary opens another file.

    Args:
        logdir: The directory; it is created with the file, by the first summary.
        graph: Must be None: there is no graph.
        max_queue: How many summaries may wait to be written, at least 1; none ever does.
        flush_secs: After how many seconds, at the latest, a further summary makes all visible to readers.
        graph_def: Must be None.
        filename_suffix: The end of the file's name.
        session: Must be None.

    Source: tf.compat.v1.summary.FileWriter.

    Raises:
        UnsupportedError: If a graph or a session is given.
        ArgumentError: If a number is out of range.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        for name, given in (("graph", graph), ("graph_def", graph_def), ("session", session)):
            if given is not None:
                raise _no_graph_error(f"FileWriter({name}={given!r})")
        if max_queue < 1 or flush_secs < 0:
            raise ArgumentError(
                "max_queue is at least 1 and flush_secs at least 0: received "
                f"max_queue={max_queue!r}, flush_secs={flush_secs!r}."
            )
        self._logdir = os.fspath(logdir)
        self._file = EventFile(self._logdir, filename_suffix or "", flush_secs)

    def get_logdir(self) -> str:
        """Returns the directory."""
        return self._logdir

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Writes a summary.

        Args:
            summary: A `Summary`, also as serialized bytes; or a `SummaryOp` whose value is computed, or a list of them.
            global_step: After which step; default: 0.

        Raises:
            ArgumentError: If `summary` is something else.
        """
        for message in _messages_in(summary):
            self._file.add_summary(message, int(global_step or 0))

    def add_event(self, event: Any) -> None:
        """Writes an `Event`."""
        self._file.add_event(event)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Writes a `SessionLog`: after a `START`, TensorBoard drops what earlier files have of this step and later."""
        event = messages("event").Event(wall_time=time.time(), step=int(global_step or 0), session_log=session_log)
        self._file.add_event(event)

    def add_graph(self, graph: Any, *args: Any, **kwargs: Any) -> None:
        """Refuses: there is no graph.

        Raises:
            UnsupportedError: Always.
        """
        raise _no_graph_error("FileWriter.add_graph")

    def flush(self) -> None:
        """Makes what was written visible to readers."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def reopen(self) -> None:
        """Does nothing: after `close`, the next summary opens another file anyway."""

    def __enter__(self) -> FileWriter:
        """Returns the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file."""
        self.close()


class FileWriterCache:
    """The writers of this process, one for each directory.

    Source: tf.compat.v1.summary.FileWriterCache.
    """

    # Hooks of one directory share an event file: once there is a newer one, TensorBoard reads no more of the older.
    _writers: ClassVar[dict[str, FileWriter]] = {}
    _lock = threading.Lock()

    @staticmethod
    def get(logdir: str | os.PathLike[str]) -> FileWriter:
        """Returns the writer of a directory."""
        path = os.fspath(logdir)
        with FileWriterCache._lock:
            return FileWriterCache._writers.setdefault(path, FileWriter(path))

    @staticmethod
    def clear() -> None:
        """Closes all writers and forgets them."""
        with FileWriterCache._lock:
            for writer in FileWriterCache._writers.values():
                writer.close()
            FileWriterCache._writers.clear()


def _messages_in(summary: Any) -> list[Any]:
    if isinstance(summary, (list, tuple)):
        return [message for one in summary for message in _messages_in(one)]
    if isinstance(summary, SummaryOp):
        return [as_summary(summary)]
    if isinstance(summary, bytes):
        return [messages("summary").Summary.FromString(summary)]
    if isinstance(summary, messages("summary").Summary):
        return [summary]
    if hasattr(summary, "SerializeToString"):
        # Another library's class of the same message.
        return _messages_in(summary.SerializeToString())
    raise ArgumentError(
        f"add_summary takes a Summary, its bytes, or what lockstep.estimator.summary.scalar and its like make: "
        f"received {summary!r}. For a number, write Summary(value=[Summary.Value(tag=..., simple_value=...)])."
    )


def _no_graph_error(argument: str) -> UnsupportedError:
    return UnsupportedError(
        f"There is no graph of TensorFlow to write, what runs is compiled by XLA: received {argument}. Leave it out; "
        "ProfilerHook shows what runs."
    )


def write(event_file: EventFile, summary_op: SummaryOp, value: Any, step: int) -> None:
    """Writes a summary with a computed value: an array, or the words of a text; that of `summary_op` is not used."""
    event_file.add_summary(as_summary(replace(summary_op, value=value)), step)


def as_summary(op: SummaryOp) -> Any:
    """Returns a summary with a computed value as the protocol buffer `Summary`."""
    if op.kind == "text":
        texts = np.asarray(op.value.on_host() if hasattr(op.value, "on_host") else op.value, object)
        encoded = [text.encode() if isinstance(text, str) else bytes(text) for text in texts.flat]
        return _protos.text_value(op.tag, encoded, "text", texts.shape)
    value = np.asarray(op.value)
    if op.kind == "scalar":
        return _protos.scalar_value(op.tag, value)
    if op.kind == "histogram":
        return _protos.histogram_value(op.tag, value)
    merged = messages("summary").Summary()
    for number, image in enumerate(as_bytes(value[: op.max_outputs])):
        # TensorFlow's tags: a number only where there may be several.
        tag = f"{op.tag}/image/{number}" if op.max_outputs > 1 else f"{op.tag}/image"
        merged.MergeFrom(_protos.image_value(tag, image))
    return merged
