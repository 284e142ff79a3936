"""Summaries for TensorBoard, without TensorFlow: values of a model_fn, and event files.

`scalar`, `histogram`, `image` and `text` are for use inside of a model_fn; the Estimator writes what they show. The
rest writes and reads event files. `Summary`, `Event` and `SessionLog` are the protocol buffers in these files.
"""

from __future__ import annotations

from typing import Any

from lockstep.summary._event_file import EventFile as EventFile
from lockstep.summary._file_writer import FileWriter as FileWriter
from lockstep.summary._file_writer import FileWriterCache as FileWriterCache
from lockstep.summary._ops import audio as audio
from lockstep.summary._ops import histogram as histogram
from lockstep.summary._ops import image as image
from lockstep.summary._ops import merge as merge
from lockstep.summary._ops import merge_all as merge_all
from lockstep.summary._ops import scalar as scalar
from lockstep.summary._ops import text as text
from lockstep.summary._protos import messages as _messages
from lockstep.summary._reader import read_events as read_events
from lockstep.summary._reader import scalars as scalars
from lockstep.summary._write import as_summary as as_summary
from lockstep.summary._write import write as write

Event: Any
SessionLog: Any
Summary: Any

__all__ = [
    "Event",
    "EventFile",
    "FileWriter",
    "FileWriterCache",
    "SessionLog",
    "Summary",
    "as_summary",
    "audio",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "read_events",
    "scalar",
    "scalars",
    "text",
    "write",
]

# Their library is large, and imported when one of them is first used.
_FILES = {"Event": "event", "SessionLog": "event", "Summary": "summary"}


def __getattr__(name: str) -> Any:
    if name in _FILES:
        return getattr(_messages(_FILES[name]), name)
    raise AttributeError(f"module 'lockstep.summary' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
