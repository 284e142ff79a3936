"""Finds out whether all processes share a machine, and connects those that do.

Each listens on a socket in a directory that only its user can enter, for as long as it takes the others to connect.
Nothing is believed of a process that is not of the same user, and nothing is read from it but descriptors and numbers.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep._cpu.shared_memory import memory
from lockstep._cpu.shared_memory.links import Links
from lockstep._cpu.shared_memory.memory import Arena
from lockstep._engine.runtime import unix_sockets
from lockstep._engine.runtime.runtime import Runtime

_log = logging.getLogger("lockstep")

_TOKEN_BYTES = 16
_HELLO = struct.Struct(f"=q{_TOKEN_BYTES}s")
_CONNECT_SECONDS = 30.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def connect(runtime: Runtime, capacity: int, seconds: float, wanted: bool) -> tuple[Links, list[Arena]] | None:
    """Connects all processes of a job, if they share a machine; otherwise `None`, on all of them.

    Args:
        runtime: This process among the others.
        capacity: Bytes of a round.
        seconds: How long a process may keep the others waiting, later on.
        wanted: Whether this process wants to; if one does not, none does.
    """
    with contextlib.ExitStack() as stack:
        door = _open_door(stack) if wanted and _is_supported() else None
        offers = runtime.all_gather_object("the memory shared with other tasks", door.offer if door else None)
        if door is None or not _is_one_machine(offers):
            return None
        try:
            found = _exchange(runtime, door, offers, capacity)
        except (OSError, ValueError) as error:
            _log.debug("no shared memory: %s", error)
            found = None
        connected = runtime.all_gather_object("the connections to other tasks", found is not None)
    if found is None:
        return None
    sockets, arenas = found
    if all(connected):
        return Links(runtime.tasks, runtime.process, sockets, seconds), arenas
    for s in sockets.values():
        s.close()
    return None


def _open_door(stack: contextlib.ExitStack) -> _Door | None:
    try:
        return _Door(stack)
    except OSError as error:  # No directory for temporary files.
        _log.debug("no shared memory: %s", error)
        return None


def _is_supported() -> bool:
    return sys.platform == "linux" and hasattr(socket, "SO_PEERCRED") and memory.is_supported() and _BOOT.exists()


def _is_one_machine(offers: Sequence[Mapping[str, Any] | None]) -> bool:
    machines = [offer and offer["machine"] for offer in offers]
    return None not in machines and len({tuple(m) for m in machines if m}) == 1


class _Door:
    """Where other processes can connect to this one."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-"))
        self.socket = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        path = os.path.join(directory, "door")
        with unix_sockets.addressed(path) as address:
            self.socket.bind(address)
        self.socket.listen(128)
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        # The same boot of the same kernel, and the same directory to meet in.
        place = os.stat(os.path.dirname(directory))
        machine = [_BOOT.read_text().strip(), os.getuid(), place.st_dev, place.st_ino]
        self.offer = {"machine": machine, "path": path, "token": self.token.hex()}


def _exchange(
    runtime: Runtime, door: _Door, offers: Sequence[Mapping[str, Any]], capacity: int
) -> tuple[dict[int, socket.socket], list[Arena]]:
    """Connects to the processes before this one, then lets in those after it."""
    own = memory.create(capacity)
    sockets: dict[int, socket.socket] = {}
    arenas: dict[int, Arena] = {}
    deadline = time.monotonic() + _CONNECT_SECONDS
    try:
        for other in range(runtime.process):
            s = sockets[other] = _reach(offers[other], runtime.process, deadline)
            arenas[other] = _swap(s, own, capacity)
        for _ in range(runtime.process + 1, len(runtime.tasks)):
            other, s = _let_in(door, deadline)
            sockets[other] = s
            arenas[other] = _swap(s, own, capacity)
        if len(sockets) != len(runtime.tasks) - 1:
            raise ValueError("a task has connected twice")
    except BaseException:
        for s in sockets.values():
            s.close()
        os.close(own)
        raise
    arenas[runtime.process] = Arena(own, capacity, writable=True)
    return sockets, [arenas[i] for i in range(len(runtime.tasks))]


def _reach(offer: Mapping[str, Any], process: int, deadline: float) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        s.settimeout(_left(deadline))
        with unix_sockets.addressed(offer["path"]) as address:
            s.connect(address)
        _demand_own_user(s)
        s.send(_HELLO.pack(process, bytes.fromhex(offer["token"])))
    except BaseException:
        s.close()
        raise
    return s


def _let_in(door: _Door, deadline: float) -> tuple[int, socket.socket]:
    door.socket.settimeout(_left(deadline))
    s, _ = door.socket.accept()
    try:
        s.settimeout(_left(deadline))
        _demand_own_user(s)
        process, token = _HELLO.unpack(s.recv(_HELLO.size))
        if not hmac.compare_digest(token, door.token):
            raise ValueError("a stranger has connected")
    except struct.error:
        s.close()
        raise ValueError("a task has ended while it connected") from None
    except BaseException:
        s.close()
        raise
    return process, s


def _swap(s: socket.socket, own: int, capacity: int) -> Arena:
    """Hands over this process' memory, and takes the other's."""
    socket.send_fds(s, [b"m"], [own])
    said, descriptors, _, _ = socket.recv_fds(s, 1, 1)
    if said != b"m" or len(descriptors) != 1:
        for d in descriptors:
            os.close(d)
        raise ValueError("a task has sent no memory")
    return Arena(descriptors[0], capacity, writable=False)


def _demand_own_user(s: socket.socket) -> None:
    credentials = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.getuid():
        raise ValueError("a process of another user has connected")


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
