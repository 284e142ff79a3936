"""Proxies local connections over network connections, which may be replaced, on one thread.

A connection of TCP outlives a cut of the network, but not in time: the pause before its next try doubles each time, so
that after a cut of 55 s nothing comes for 102 s; and gRPC ends its own after 20 s (TCP_USER_TIMEOUT). So the bytes of a
local connection travel as a `Stream`. A network connection on which nothing comes, though the other side speaks once a
second, is given up, and another one carries on.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from lockstep._engine.runtime.stream import Stream, StreamError

_CHUNK = 65536
# Bytes of one direction that are not yet acknowledged; then nothing more is read for it, however slow its reader is.
_MAX_WAITING = 1 << 20
_TICK_SECONDS = 0.5
_HEARTBEAT_SECONDS = 1.0
# Three heartbeats: on a connection that is silent for so long nothing will come soon.
_SILENT_SECONDS = 3.0


class ProxiedConnection:
    """A local connection and the network connection that carries it; `on_lost` is called when that is lost."""

    def __init__(self, local: socket.socket, on_lost: Callable[[], None] | None = None) -> None:
        self.local = local
        self.link: socket.socket | None = None
        self.on_lost = on_lost
        self.stream = Stream()
        self.to_local, self.to_link = bytearray(), bytearray()
        self.received_at = self.sent_at = time.monotonic()
        # Until the local side has ended its half of the stream.
        self.is_open = True


class Proxy:
    """A thread that carries local connections. When one side ends a stream, so does the other."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._new: deque[tuple[ProxiedConnection, socket.socket | None, bytes]] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._carried: set[ProxiedConnection] = set()
        for s in (self._wake_reader, self._wake_writer):
            s.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        # A forked process that keeps a connection open would hide this one's end.
        os.register_at_fork(after_in_child=self.close_in_fork)
        self._thread = threading.Thread(target=self._run, name="lockstep-relay", daemon=True)
        self._thread.start()

    def add(self, carried: ProxiedConnection) -> None:
        """Takes a local connection, which it closes in the end; from any thread."""
        self.carry(carried, None)

    def carry(self, carried: ProxiedConnection, link: socket.socket | None, first: bytes = b"") -> None:
        """Carries on over the network connection `link`, of which `first` was read already; from any thread."""
        self._new.append((carried, link, first))
        with contextlib.suppress(BlockingIOError):  # The pipe is full: the thread wakes up anyway.
            self._wake_writer.send(b"!")

    def close_in_fork(self) -> None:
        """Closes inherited descriptors; the parent's connections stay open."""
        for sock in (self._wake_reader, self._wake_writer):
            sock.close()
        for carried in self._carried:
            carried.local.close()
            if carried.link is not None:
                carried.link.close()
        self._selector.close()

    def _run(self) -> None:
        looked = time.monotonic()
        while True:
            for key, events in self._selector.select(_TICK_SECONDS):
                if key.data is None:
                    self._dequeue()
                    continue
                carried, is_local = key.data
                if carried in self._carried:  # Else it was removed for the event before this one.
                    self._serve(carried, is_local, events)
            if time.monotonic() - looked >= _TICK_SECONDS:
                looked = time.monotonic()
                for carried in list(self._carried):
                    self._keep_alive(carried, looked)

    def _dequeue(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(_CHUNK)
        while self._new:
            carried, link, first = self._new.popleft()
            if link is None:
                carried.local.setblocking(False)
                self._carried.add(carried)
                self._select(carried)
            elif carried in self._carried:
                self._start_link(carried, link, first)
            else:
                link.close()

    def _start_link(self, carried: ProxiedConnection, link: socket.socket, first: bytes) -> None:
        self._drop_link(carried)
        link.setblocking(False)
        with contextlib.suppress(OSError):  # gRPC's messages are short, and waited for.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        carried.link = link
        carried.received_at = time.monotonic()
        self._queue_frames(carried, carried.stream.begin())
        if first:
            self._take(carried, first)
        self._flush(carried)

    def _keep_alive(self, carried: ProxiedConnection, now: float) -> None:
        """Sends a heartbeat after a second of silence; gives up a connection on which nothing comes."""
        if carried.link is None:
            return
        if now - carried.received_at > _SILENT_SECONDS:
            self._drop_and_wait(carried)
        elif now - carried.sent_at >= _HEARTBEAT_SECONDS and not carried.to_link:
            self._queue_frames(carried, carried.stream.acknowledgement())
            self._flush(carried)

    def _serve(self, carried: ProxiedConnection, is_local: bool, events: int) -> None:
        sock = carried.local if is_local else carried.link
        data = _receive(sock) if events & selectors.EVENT_READ and sock is not None else None
        if data and is_local:
            carried.stream.add(data)
        elif data:
            carried.received_at = time.monotonic()
            self._take(carried, data)
        elif data is not None and is_local:
            carried.is_open = False
            carried.stream.end()
        elif data is not None:
            self._drop_and_wait(carried)
        if carried in self._carried:
            self._flush(carried)

    def _take(self, carried: ProxiedConnection, data: bytes) -> None:
        try:
            carried.to_local += carried.stream.take(data)
        except StreamError:
            self._drop_and_wait(carried)

    def _flush(self, carried: ProxiedConnection) -> None:
        """Sends as much as the system takes, and selects the events that are due from now on."""
        before = len(carried.to_local)
        is_open = _send(carried.local, carried.to_local)
        carried.stream.passed_on += before - len(carried.to_local)
        if not is_open:
            carried.to_local.clear()
            carried.is_open = False
            carried.stream.end()
        if carried.stream.has_ended and not carried.to_local:
            self._remove(carried)
            return
        if carried.link is not None:
            owed = carried.stream.acknowledgement() if carried.stream.owes_acknowledgement else b""
            self._queue_frames(carried, carried.stream.frames() or owed)
            if not _send(carried.link, carried.to_link):
                self._drop_and_wait(carried)
                return
        self._select(carried)

    def _queue_frames(self, carried: ProxiedConnection, frames: bytes) -> None:
        if frames:
            carried.to_link += frames
            carried.sent_at = time.monotonic()

    def _drop_and_wait(self, carried: ProxiedConnection) -> None:
        """Goes on without a network connection, until there is another; ends what the local side has ended."""
        if not carried.is_open:
            self._remove(carried)
            return
        self._drop_link(carried)
        self._select(carried)
        if carried.on_lost is not None:
            carried.on_lost()

    def _drop_link(self, carried: ProxiedConnection) -> None:
        if carried.link is not None:
            self._set_events(carried.link, 0, (carried, False))
            carried.link.close()
        carried.link = None
        carried.to_link.clear()

    def _remove(self, carried: ProxiedConnection) -> None:
        self._set_events(carried.local, 0, (carried, True))
        carried.local.close()
        self._drop_link(carried)
        self._carried.discard(carried)

    def _select(self, carried: ProxiedConnection) -> None:
        # A reader that is slow stops its writer, as TCP would: else the bytes would pile up here.
        reads = carried.is_open and carried.stream.unacknowledged < _MAX_WAITING
        self._set_events(carried.local, _events(reads, carried.to_local), (carried, True))
        if carried.link is not None:
            self._set_events(carried.link, _events(True, carried.to_link), (carried, False))

    def _set_events(self, sock: socket.socket, events: int, data: tuple[ProxiedConnection, bool]) -> None:
        is_known = sock in self._selector.get_map()
        if events and is_known:
            self._selector.modify(sock, events, data)
        elif events:
            self._selector.register(sock, events, data)
        elif is_known:
            self._selector.unregister(sock)


def _events(reads: bool, waiting: bytearray) -> int:
    return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if waiting else 0)


def _receive(sock: socket.socket) -> bytes | None:
    """Returns the bytes that have come, none if the connection has ended, or `None` if none have come yet."""
    try:
        return sock.recv(_CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _send(sock: socket.socket, waiting: bytearray) -> bool:
    """Sends as much of `waiting` as the system takes; returns whether the connection is open."""
    try:
        while waiting:
            del waiting[: sock.send(waiting[:_CHUNK])]
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True
