"""Which process made a file, by the file's name, and whether it still runs.

A name ends with `.<machine>.<pid>.<start>.<token>`: `machine` stands for the host and the namespace of its process
ids, `start` is when the process started, because process ids are used again.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from dataclasses import dataclass
from enum import Enum

_TAG = re.compile(r"(?P<stem>.+)\.(?P<machine>[0-9a-f]{12})\.(?P<pid>[0-9]{1,10})\.(?P<start>[0-9]{1,20})\.[0-9a-f]{8}")


class Life(Enum):
    """Whether a process runs."""

    ALIVE = "alive"
    DEAD = "dead"
    # It is of another machine, which cannot be asked.
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Owned:
    """What a name says.

    Attributes:
        stem: The name without the owner.
        life: Whether the owner runs.
    """

    stem: str
    life: Life


def tagged(stem: str) -> str:
    """Returns a name that nobody else uses, and that says that this process made it."""
    pid = os.getpid()
    return f"{stem}.{_machine()}.{pid}.{_start(pid)}.{secrets.token_hex(4)}"


def owned(name: str) -> Owned | None:
    """Returns what a name from `tagged` says, or `None` for any other name."""
    found = _TAG.fullmatch(name)
    if found is None:
        return None
    if found["machine"] != _machine():
        return Owned(found["stem"], Life.ELSEWHERE)
    return Owned(found["stem"], Life.ALIVE if _runs(int(found["pid"]), int(found["start"])) else Life.DEAD)


def _machine() -> str:
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return hashlib.blake2b(f"{socket.gethostname()}|{namespace}".encode(), digest_size=6).hexdigest()


def _runs(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return _start(pid) == start


def _start(pid: int) -> int:
    """Returns when a process started, in the kernel's ticks; -1 if it has ended and waits for its parent, else 0."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return -1 if fields[0] in "ZXx" else int(fields[19])
