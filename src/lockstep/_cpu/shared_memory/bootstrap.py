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

from lockstep._cpu.shared_memory import shm
from lockstep._cpu.shared_memory.connections import Connections
from lockstep._cpu.shared_memory.shm import Segment
from lockstep._engine.runtime import unix_sockets
from lockstep._engine.runtime.runtime import Runtime

_log = logging.getLogger("lockstep")

_TOKEN_BYTES = 16
_HELLO = struct.Struct(f"=q{_TOKEN_BYTES}s")
# Long enough for a process that compiles on a busy machine; all have come through the agreement already.
_CONNECT_SECONDS = 30.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def connect(runtime: Runtime, capacity: int, seconds: float, wanted: bool) -> tuple[Connections, list[Segment]] | None:
    """Connects all processes of a job, if they share a machine; otherwise `None`, on all of them.

    Args:
        runtime: This process among the others.
        capacity: Bytes of a chunk.
        seconds: How long a process may keep the others waiting, later on.
        wanted: Whether this process wants to; if one does not, none does.
    """
    with contextlib.ExitStack() as stack:
        listener = None
        has_parts = sys.platform == "linux" and hasattr(socket, "SO_PEERCRED") and shm.is_supported() and _BOOT.exists()
        if wanted and has_parts:
            try:
                listener = _Listener(stack)
            except OSError as error:
                # There is no directory for temporary files.
                _log.debug("no shared memory: %s", error)
        # Every process takes part in both agreements, whatever it has found: the others wait for it.
        offers = runtime.all_gather_object("the memory shared with other tasks", listener.offer if listener else None)
        if listener is None or len({offer and tuple(offer["machine"]) for offer in offers}) != 1:
            return None
        connected = None
        try:
            connected = _connect_all(runtime, listener, offers, capacity)
        except (OSError, ValueError) as error:
            _log.debug("no shared memory: %s", error)
        succeeded = runtime.all_gather_object("the connections to other tasks", connected is not None)
    if connected is None:
        return None
    sockets, segments = connected
    if all(succeeded):
        return Connections(runtime.tasks, runtime.process, sockets, seconds), segments
    for s in sockets.values():
        s.close()
    return None


class _Listener:
    """The socket at which other processes can connect to this one."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-"))
        self.socket = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        path = os.path.join(directory, "socket")
        with unix_sockets.shorten_path(path) as address:
            self.socket.bind(address)
        self.socket.listen(128)
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        # The same boot of the same kernel, and the same directory to meet in.
        place = os.stat(os.path.dirname(directory))
        machine = [_BOOT.read_text().strip(), os.getuid(), place.st_dev, place.st_ino]
        self.offer = {"machine": machine, "path": path, "token": self.token.hex()}


def _connect_all(
    runtime: Runtime, listener: _Listener, offers: Sequence[Mapping[str, Any]], capacity: int
) -> tuple[dict[int, socket.socket], list[Segment]]:
    """Connects to the processes before this one, then accepts those after it: so nobody waits in a circle."""
    own = shm.create(capacity)
    sockets: dict[int, socket.socket] = {}
    segments: dict[int, Segment] = {}
    deadline = time.monotonic() + _CONNECT_SECONDS
    try:
        for other in range(runtime.process):
            s = sockets[other] = _dial(offers[other], runtime.process, deadline)
            segments[other] = _swap_segments(s, own, capacity)
        for _ in range(runtime.process + 1, len(runtime.tasks)):
            other, s = _accept(listener, deadline)
            sockets[other] = s
            segments[other] = _swap_segments(s, own, capacity)
        if len(sockets) != len(runtime.tasks) - 1:
            raise ValueError("a task has connected twice")
    except BaseException:
        for s in sockets.values():
            s.close()
        os.close(own)
        raise
    segments[runtime.process] = Segment(own, capacity, writable=True)
    return sockets, [segments[i] for i in range(len(runtime.tasks))]


def _dial(offer: Mapping[str, Any], process: int, deadline: float) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        s.settimeout(_seconds_until(deadline))
        with unix_sockets.shorten_path(offer["path"]) as address:
            s.connect(address)
        _check_peer_user(s)
        s.send(_HELLO.pack(process, bytes.fromhex(offer["token"])))
    except BaseException:
        s.close()
        raise
    return s


def _accept(listener: _Listener, deadline: float) -> tuple[int, socket.socket]:
    listener.socket.settimeout(_seconds_until(deadline))
    s, _ = listener.socket.accept()
    try:
        s.settimeout(_seconds_until(deadline))
        _check_peer_user(s)
        process, token = _HELLO.unpack(s.recv(_HELLO.size))
        if not hmac.compare_digest(token, listener.token):
            raise ValueError("a stranger has connected")
    except struct.error:
        s.close()
        raise ValueError("a task has ended while it connected") from None
    except BaseException:
        s.close()
        raise
    return process, s


def _swap_segments(s: socket.socket, own: int, capacity: int) -> Segment:
    """Hands over this process' memory, and takes the other's."""
    socket.send_fds(s, [b"m"], [own])
    message, descriptors, _, _ = socket.recv_fds(s, 1, 1)
    if message != b"m" or len(descriptors) != 1:
        for d in descriptors:
            os.close(d)
        raise ValueError("a task has sent no memory")
    return Segment(descriptors[0], capacity, writable=False)


def _check_peer_user(s: socket.socket) -> None:
    credentials = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.getuid():
        raise ValueError("a process of another user has connected")


def _seconds_until(deadline: float) -> float:
    # Zero would make the socket non-blocking.
    return max(0.001, deadline - time.monotonic())
