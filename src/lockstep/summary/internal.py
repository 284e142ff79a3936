"""Parts of `lockstep.summary` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.summary import _protos as protos
from lockstep.summary._event_file import EventFile as EventFile
from lockstep.summary._event_file import goes_on_without as goes_on_without
from lockstep.summary._hparams import session_start as session_start
from lockstep.summary._protos import as_bytes as as_bytes
from lockstep.summary._protos import messages as messages

__all__ = [
    "EventFile",
    "as_bytes",
    "goes_on_without",
    "messages",
    "protos",
    "session_start",
]
