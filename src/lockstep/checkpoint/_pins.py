"""Pins of checkpoints that are being read and must stay: a file in `.pins/` beside them names the reader.

Between looking for pins and removing a checkpoint nobody may pin it. Both hold a lock on the checkpoint's own file for
that moment: the reader a shared one, the writer, which does not wait for it, an exclusive one. Where the file system
has no locks, that moment stays open.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from lockstep.checkpoint import _atomic, _owners
from lockstep.checkpoint._names import file_of, prefix_of
from lockstep.checkpoint._owners import Life
from lockstep.checkpoint._table_files import remove_tables
from lockstep.checkpoint._tensorflow.bundle import is_bundle
from lockstep.errors import CheckpointError

_log = logging.getLogger("lockstep")

_DIRECTORY = ".pins"
_SUFFIX = ".pin"
# A pin that was not refreshed for so many seconds does not count; its holder refreshes it more often.
_LAPSED = 3600.0
_REFRESHED = 600.0
# For so many seconds a reader waits at most while the writer decides.
_PATIENCE = 10.0


@contextmanager
def pinned(prefix: str | os.PathLike[str]) -> Generator[str]:
    """Keeps a checkpoint from being removed by its writer while it is being read, also by another process.

    It is removed at a later save, when the pin has gone. A pin ends with its process, or after an hour in which the
    process was stopped. In a directory that cannot be written to nothing is pinned, and the log warns of it.

    Args:
        prefix: The checkpoint's name.

    Yields:
        The name.

    Raises:
        CheckpointError: If the checkpoint is not there (any more).
    """
    name = prefix_of(prefix)
    # Nobody here removes TensorFlow's files, so that they need no pin.
    pin = None if not os.path.exists(file_of(name)) and is_bundle(name) else _pin(os.path.abspath(name))
    done = threading.Event()
    # A thread, because the reader may be inside a long read of its own.
    refresher = threading.Thread(target=_refresh, args=(pin, done), name="lockstep-pin", daemon=True)
    if pin:
        refresher.start()
    try:
        yield name
    finally:
        done.set()
        if pin:
            refresher.join()
            _unlink(pin)


def remove_unless_pinned(prefix: str) -> bool:
    """Removes a checkpoint that nobody reads.

    Returns:
        Whether it is gone.

    Raises:
        OSError: If it cannot be removed.
    """
    file = file_of(prefix)
    # Read and write: NFS grants an exclusive lock only on such a descriptor.
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        directory, name = os.path.split(prefix)
        # A reader that is pinning it holds a shared lock for that moment.
        if not _lock(descriptor, fcntl.LOCK_EX) or name in _pinned_names(os.path.join(directory, _DIRECTORY)):
            return False
        os.unlink(file)
        remove_tables(prefix)
        return True
    finally:
        os.close(descriptor)


def _pin(prefix: str) -> str | None:
    """Makes a pin while the writer cannot be removing the checkpoint; returns its path."""
    descriptor = _open_locked(file_of(prefix))
    directory, name = os.path.split(prefix)
    pins = os.path.join(directory, _DIRECTORY)
    pin = os.path.join(pins, _owners.tag_name(name) + _SUFFIX)
    try:
        os.makedirs(pins, exist_ok=True)
        # A reader that was killed leaves its pin to the next one: its checkpoint may never be looked at by the writer.
        _pinned_names(pins)
        try:
            with open(pin, "x", encoding="utf-8") as file:
                json.dump({"host": socket.gethostname(), "pid": os.getpid()}, file)
        except OSError:
            _unlink(pin)
            raise
        return pin
    except OSError as error:
        _log.warning("%s cannot be pinned (%s): it may be removed while it is being read.", prefix, error)
        return None
    finally:
        os.close(descriptor)


def _open_locked(file: str) -> int:
    """Opens a checkpoint's file with a shared lock, if the file system has locks; returns the descriptor."""
    end, pause = time.monotonic() + _PATIENCE, threading.Event()
    while True:
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # Not to wait, should it be a pipe.
        except OSError as error:
            raise CheckpointError(
                f"{file} cannot be pinned: {error}. The writer removes old checkpoints; take a newer one, as "
                "latest_checkpoint returns it."
            ) from error
        if not _lock(descriptor, fcntl.LOCK_SH) and time.monotonic() < end:
            os.close(descriptor)
            pause.wait(0.005)
        elif _is_current(descriptor, file):
            return descriptor
        else:
            # Removed or replaced in the meantime.
            os.close(descriptor)


def _is_current(descriptor: int, file: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, kind: int) -> bool:
    """Returns whether no other process has a lock that excludes this one."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # The file system has no locks: see above.
    return True


def _refresh(pin: str, done: threading.Event) -> None:
    while not done.wait(_REFRESHED):
        # Made anew if it had lapsed and was cleared away.
        with suppress(OSError), open(pin, "a", encoding="utf-8"):
            os.utime(pin)


def _pinned_names(pins: str) -> set[str]:
    """Returns the names of checkpoints that are pinned; removes pins that no longer count."""
    names: set[str] = set()
    try:
        paths = [os.path.join(pins, name) for name in os.listdir(pins)]
    except (FileNotFoundError, NotADirectoryError):
        return names
    for pin in paths:
        owner = _owners.parse_tag(os.path.basename(pin).removesuffix(_SUFFIX))
        if owner is None:
            continue
        if owner.life is Life.DEAD or _has_lapsed(pin):
            _unlink(pin)
        else:
            names.add(owner.stem)
    return names


def _has_lapsed(pin: str) -> bool:
    try:
        return _atomic.age(pin) > _LAPSED
    except FileNotFoundError:
        return True


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
