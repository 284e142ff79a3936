"""Parts of `lockstep.report` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lockstep.report._files import LAUNCHER as LAUNCHER
from lockstep.report._files import RecordFile as RecordFile
from lockstep.report._files import path_of as path_of
from lockstep.report._settings import settings as settings

if TYPE_CHECKING:
    from lockstep.report._compare import compare as compare
    from lockstep.report._page import write_report as write_report
    from lockstep.report._watch import watch as watch

__all__ = ["LAUNCHER", "RecordFile", "compare", "path_of", "settings", "watch", "write_report"]

# What shows records is imported when it is used: a task that trains only writes them.
_SHOWING = {"compare": "_compare", "watch": "_watch", "write_report": "_page"}


def __getattr__(name: str) -> Any:
    if name in _SHOWING:
        return getattr(importlib.import_module(f"lockstep.report.{_SHOWING[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
