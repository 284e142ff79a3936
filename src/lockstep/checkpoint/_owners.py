"""Owners of files: the process that made a file, by the file's name, and whether it still runs.

A name ends with `.<machine>.<pid>.<start>.<token>`: `machine` stands for the running kernel and the namespace of its
process ids, `start` is when the process started, because process ids are used again. A host's name would not do: two
hosts or containers that share files may have the same, and process ids of the one say nothing about the other.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import uuid
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_TAG = re.compile(r"(?P<stem>.+)\.(?P<machine>[0-9a-f]{12})\.(?P<pid>[0-9]{1,10})\.(?P<start>[0-9]{1,20})\.[0-9a-f]{8}")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


class Life(Enum):
    """State of a process."""

    ALIVE = "alive"
    DEAD = "dead"
    # On another machine, which cannot be asked.
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Owned:
    """A name without its owner, and the owner's state."""

    stem: str
    life: Life


def tag_name(stem: str) -> str:
    """Returns a unique name that says that this process made the file."""
    pid = os.getpid()
    return f"{stem}.{_machine()}.{pid}.{_start(pid)}.{secrets.token_hex(4)}"


def parse_tag(name: str) -> Owned | None:
    """Parses a name from `tag_name`; returns `None` for any other name."""
    found = _TAG.fullmatch(name)
    if found is None:
        return None
    if found["machine"] != _machine():
        return Owned(found["stem"], Life.ELSEWHERE)
    return Owned(found["stem"], Life.ALIVE if _runs(int(found["pid"]), int(found["start"])) else Life.DEAD)


def _machine() -> str:
    """Returns a digest of this start of this machine, its name, and the namespace of process ids."""
    # After a reboot it is another one: nothing from before runs, but that is known only by a file's age.
    try:
        kernel = _BOOT_ID.read_text().strip()
    except OSError:
        kernel = f"{uuid.getnode():x}"  # Without Linux' id of the boot, that of a network card.
    try:
        namespace = os.stat(_PID_NAMESPACE).st_ino
    except OSError:
        namespace = 0
    # The host's name tells apart virtual machines that were copied while they ran.
    whole = f"{kernel}|{socket.gethostname()}|{namespace}"
    return hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()


def _runs(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # It runs, as another user.
    return _start(pid) == start


def _start(pid: int) -> int:
    """Returns when a process started, in the kernel's ticks; -1 if it has ended and waits for its parent, else 0."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # The name before it may hold anything.
    except OSError:
        return 0
    # A zombie still answers to signal 0. Field 22 of proc(5), of which two were cut off, is the start.
    return -1 if fields[0] in "ZXx" else int(fields[19])
