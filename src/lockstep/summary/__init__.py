"""Event files of TensorBoard, written and read without TensorFlow.

`Summary`, `Event` and `SessionLog` are the protocol buffers in these files. Summaries of a model_fn are in
`lockstep.estimator.summary`.
"""

from __future__ import annotations

from typing import Any

from lockstep.summary._event_file import EventFile as EventFile
from lockstep.summary._protos import messages as _messages
from lockstep.summary._reader import read_events as read_events
from lockstep.summary._reader import scalars as scalars

Event: Any
SessionLog: Any
Summary: Any

__all__ = [
    "Event",
    "EventFile",
    "SessionLog",
    "Summary",
    "read_events",
    "scalars",
]

# Their library is large, and imported when one of them is first used.
_FILES = {"Event": "event", "SessionLog": "event", "Summary": "summary"}


def __getattr__(name: str) -> Any:
    if name in _FILES:
        return getattr(_messages(_FILES[name]), name)
    raise AttributeError(f"module 'lockstep.summary' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
