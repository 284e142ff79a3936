"""Compiled programs on disk, by their keys.

Several processes read and write at once: an entry is whole or not there, and as it was written (`SignedFiles`).
Whatever goes wrong (a full disk, a damaged or a missing file) means that a program is compiled again, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path

from lockstep._runtime.signed_files import OVERHEAD, PARTIAL, SignedFiles, remove
from lockstep._runtime.turns import Turns

_log = logging.getLogger("lockstep")
# Part of the names: entries of another version are not looked at, and go when they have not been used for longest.
_VERSION = "2"
_SUFFIX = ".program"
_TURN_SUFFIX = ".turn"
# A writer that takes longer has died.
_PARTIAL_SECONDS = 600.0
# Marking an entry as used each time would be a write for each read.
_MARK_SECONDS = 3600.0
# Making room for one entry at a time would list the directory for each.
_ROOM = 0.9


class CompiledPrograms:
    """A directory of entries, of which those that were not used for longest go first.

    Args:
        directory: Private; it exists.
        machine: Goes into every key.
        limit: Bytes that all entries together may take.
    """

    def __init__(self, directory: Path, machine: str, limit: int) -> None:
        self._directory = directory
        self._machine = machine
        self._limit = limit
        self._bytes: int | None = None
        self._turns = Turns()
        self._files = SignedFiles(directory)

    def get(self, key: str, in_turn: bool = True) -> bytes | None:
        """Returns what was put under `key`, or `None` if there is nothing usable, and it is for the caller to compile.

        Another process that compiles it now is waited for if `in_turn`. Whoever gets `None` calls `done` afterwards.
        """
        path = self._path(key)
        value = self._read(path)
        if value is None and in_turn and self._turns.take(path.with_suffix(_TURN_SUFFIX)):
            value = self._read(path)
        if value is not None:
            self._turns.end()
        return value

    def done(self) -> None:
        """Lets the processes that wait for what this thread compiles go on."""
        self._turns.end()

    def _read(self, path: Path) -> bytes | None:
        value = self._files.read(path)
        if value is not None:
            _mark(path)
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keeps `value`, if there is room for it."""
        size = len(value) + OVERHEAD
        if size > self._limit * _ROOM:
            return
        try:
            self._make_room(size)
            self._files.write(self._path(key), value)
        except OSError as error:
            _log.debug("A compiled program is not kept in %s: %s", self._directory, error)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(f"{_VERSION}\n{self._machine}\n{key}".encode()).hexdigest()
        return self._directory / f"{name}{_SUFFIX}"

    def _make_room(self, needed: int) -> None:
        """Other processes write as well: what is counted here is right when it matters, at the limit."""
        if self._bytes is None or self._bytes + needed > self._limit:
            self._bytes = self._evict(needed)
        self._bytes += needed

    def _evict(self, needed: int) -> int:
        """Removes the oldest entries unless `needed` bytes fit; returns how many bytes are left there."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        if total + needed <= self._limit:
            return total
        for _, size, path in entries:
            if total + needed <= self._limit * _ROOM:
                break
            remove(path)
            total -= size
        return total

    def _entries(self) -> list[tuple[float, int, str]]:
        """Time of last use, size and path of every file, also of those that XLA keeps here for GPUs."""
        found: list[tuple[float, int, str]] = []
        for directory, _, names in os.walk(self._directory):
            for name in names:
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):
                    status = os.stat(path, follow_symlinks=False)
                    if _is_being_made(name) and time.time() - status.st_mtime < _PARTIAL_SECONDS:
                        continue
                    found.append((status.st_mtime, status.st_size, path))
        return found


def _is_being_made(name: str) -> bool:
    return name.startswith(PARTIAL) or name.endswith(_TURN_SUFFIX)


def _mark(path: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _MARK_SECONDS:
            os.utime(path)
