"""The directory that tasks write in for the launcher, which is made again when something has removed it."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_LOOK_SECONDS = 1.0
_PREFIX = "lockstep-"


class Workspace:
    """A directory of this user alone, below the one for temporary files.

    What cleans that up may remove it while tasks run: what they write for the launcher is lost without an error until
    it is there again.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._kept: Path | None = None
        self._looked = time.monotonic()

    def generation(self, number: int) -> Path:
        """Make and return the directory of a generation, which is kept from now on."""
        if not _is_own(self.path):
            self._replace()
        self._kept = self.path / f"generation-{number}"
        self._kept.mkdir(mode=0o700, exist_ok=True)
        return self._kept

    def look(self, now: float) -> None:
        """Make the directory of this generation again if it has gone; look once a second."""
        if self._kept is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if not self._kept.exists() and (_is_own(self.path) or _make(self.path)):
            _make(self._kept)

    def _replace(self) -> None:
        """Make it again, elsewhere if somebody else has taken the name."""
        if not _make(self.path):
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_existing(self.path.parent)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _make(path: Path) -> bool:
    """Make a directory that was not there, for this user alone; return whether that was possible."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError:
        return False
    return True


def _existing(directory: Path) -> Path | None:
    """Return the directory, or None for the system's choice of another one."""
    return directory if os.access(directory, os.W_OK) else None


def _is_own(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
