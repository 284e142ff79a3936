"""Passes the bytes of local connections on over network connections, which may be replaced, on one thread.

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
_MOST_WAITING = 1 << 20
_TICK_SECONDS = 0.5
_SPEAK_SECONDS = 1.0
# The other side speaks once a second: on a connection that is silent for so long nothing will come soon.
_SILENT_SECONDS = 3.0


class Carried:
    """A local connection, and the network connection that carries its bytes now.

    Args:
        local: The local connection.
        on_lost: Called on the relay's thread when the network connection is lost.
    """

    def __init__(self, local: socket.socket, on_lost: Callable[[], None] | None = None) -> None:
        self.local = local
        self.link: socket.socket | None = None
        self.on_lost = on_lost
        self.stream = Stream()
        self.to_local, self.to_link = bytearray(), bytearray()
        self.heard_at = self.spoke_at = time.monotonic()
        # Whether the local side may say more.
        self.is_open = True


class Relay:
    """Local connections and what carries them. When one side ends a stream, so does the other."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._new: deque[tuple[Carried, socket.socket | None, bytes]] = deque()
        self._bell, self._ring = socket.socketpair()
        self._carried: set[Carried] = set()
        for s in (self._bell, self._ring):
            s.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        # A forked process must not make this one's end look like life.
        os.register_at_fork(after_in_child=self.forget)
        self._thread = threading.Thread(target=self._run, name="lockstep-relay", daemon=True)
        self._thread.start()

    def add(self, carried: Carried) -> None:
        """Takes a local connection, which is closed later; from any thread."""
        self._hand_over(carried, None, b"")

    def carry(self, carried: Carried, link: socket.socket, first: bytes = b"") -> None:
        """Carries on over a new network connection; from any thread.

        Args:
            carried: What `add` was called with.
            link: The connection; it is closed later.
            first: Bytes that were read from it already.
        """
        self._hand_over(carried, link, first)

    def forget(self) -> None:
        """Gives all connections up, in a process that has inherited them; they stay open."""
        for sock in (self._bell, self._ring):
            sock.close()
        for carried in self._carried:
            carried.local.close()
            if carried.link is not None:
                carried.link.close()
        self._selector.close()

    def _hand_over(self, carried: Carried, link: socket.socket | None, first: bytes) -> None:
        self._new.append((carried, link, first))
        with contextlib.suppress(BlockingIOError):  # It rings anyway.
            self._ring.send(b"!")

    def _run(self) -> None:
        looked = time.monotonic()
        while True:
            for key, events in self._selector.select(_TICK_SECONDS):
                if key.data is None:
                    self._take_new()
                else:
                    carried, is_local = key.data
                    self._serve(carried, is_local, events)
            if time.monotonic() - looked >= _TICK_SECONDS:
                looked = time.monotonic()
                for carried in list(self._carried):
                    self._look(carried, looked)

    def _take_new(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(_CHUNK)
        while self._new:
            carried, link, first = self._new.popleft()
            if link is None:
                carried.local.setblocking(False)
                self._carried.add(carried)
                self._listen(carried)
            elif carried in self._carried:
                self._begin(carried, link, first)
            else:
                link.close()

    def _begin(self, carried: Carried, link: socket.socket, first: bytes) -> None:
        self._drop_link(carried)
        link.setblocking(False)
        with contextlib.suppress(OSError):  # What is said is short, and waited for.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        carried.link = link
        carried.heard_at = time.monotonic()
        self._say(carried, carried.stream.begin())
        if first:
            self._take(carried, first)
        self._flush(carried)

    def _look(self, carried: Carried, now: float) -> None:
        """Speaks when nothing has been said for a while; gives a connection up on which nothing comes."""
        if carried.link is None:
            return
        if now - carried.heard_at > _SILENT_SECONDS:
            self._lose(carried)
        elif now - carried.spoke_at >= _SPEAK_SECONDS and not carried.to_link:
            self._say(carried, carried.stream.acknowledgement())
            self._flush(carried)

    def _serve(self, carried: Carried, is_local: bool, events: int) -> None:
        if carried not in self._carried:
            return
        if events & selectors.EVENT_READ:
            if is_local:
                self._read_local(carried)
            elif carried.link is not None:
                self._read_link(carried, carried.link)
        if carried in self._carried:
            self._flush(carried)

    def _read_local(self, carried: Carried) -> None:
        data = _received(carried.local)
        if data is None:
            return
        if data:
            carried.stream.add(data)
        else:
            carried.is_open = False
            carried.stream.end()

    def _read_link(self, carried: Carried, link: socket.socket) -> None:
        data = _received(link)
        if data is None:
            return
        if data:
            carried.heard_at = time.monotonic()
            self._take(carried, data)
        else:
            self._lose(carried)

    def _take(self, carried: Carried, data: bytes) -> None:
        try:
            carried.to_local += carried.stream.take(data)
        except StreamError:
            self._lose(carried)

    def _flush(self, carried: Carried) -> None:
        """Sends what can be sent, and waits for what is due from now on."""
        before = len(carried.to_local)
        is_there = _send(carried.local, carried.to_local)
        carried.stream.passed_on += before - len(carried.to_local)
        if not is_there:
            carried.to_local.clear()
            carried.is_open = False
            carried.stream.end()
        if carried.stream.has_ended and not carried.to_local:
            self._remove(carried)
            return
        if carried.link is not None:
            owed = carried.stream.acknowledgement() if carried.stream.owes_acknowledgement else b""
            self._say(carried, carried.stream.frames() or owed)
            if not _send(carried.link, carried.to_link):
                self._lose(carried)
                return
        self._listen(carried)

    def _say(self, carried: Carried, frames: bytes) -> None:
        if frames:
            carried.to_link += frames
            carried.spoke_at = time.monotonic()

    def _lose(self, carried: Carried) -> None:
        """Goes on without a network connection, until there is another; ends what the local side has ended."""
        if not carried.is_open:
            self._remove(carried)
            return
        self._drop_link(carried)
        self._listen(carried)
        if carried.on_lost is not None:
            carried.on_lost()

    def _drop_link(self, carried: Carried) -> None:
        if carried.link is not None:
            self._wait_for(carried.link, 0, (carried, False))
            carried.link.close()
        carried.link = None
        carried.to_link.clear()

    def _remove(self, carried: Carried) -> None:
        self._wait_for(carried.local, 0, (carried, True))
        carried.local.close()
        self._drop_link(carried)
        self._carried.discard(carried)

    def _listen(self, carried: Carried) -> None:
        reads = carried.is_open and carried.stream.unacknowledged < _MOST_WAITING
        self._wait_for(carried.local, _events(reads, carried.to_local), (carried, True))
        if carried.link is not None:
            self._wait_for(carried.link, _events(True, carried.to_link), (carried, False))

    def _wait_for(self, sock: socket.socket, events: int, data: tuple[Carried, bool]) -> None:
        is_known = sock in self._selector.get_map()
        if events and is_known:
            self._selector.modify(sock, events, data)
        elif events:
            self._selector.register(sock, events, data)
        elif is_known:
            self._selector.unregister(sock)


def _events(reads: bool, waiting: bytearray) -> int:
    return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if waiting else 0)


def _received(sock: socket.socket) -> bytes | None:
    """Returns what has come, nothing if the connection has ended, or `None` if nothing has come yet."""
    try:
        return sock.recv(_CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _send(sock: socket.socket, waiting: bytearray) -> bool:
    """Sends what can be sent of `waiting`; returns whether the connection is still there."""
    try:
        while waiting:
            del waiting[: sock.send(waiting[:_CHUNK])]
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True
