"""Parts of `lockstep.report` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.report._compare import compare as compare
from lockstep.report._files import LAUNCHER as LAUNCHER
from lockstep.report._files import RecordFile as RecordFile
from lockstep.report._files import path_of as path_of
from lockstep.report._page import write_report as write_report
from lockstep.report._settings import settings as settings
from lockstep.report._watch import watch as watch

__all__ = ["LAUNCHER", "RecordFile", "compare", "path_of", "settings", "watch", "write_report"]
