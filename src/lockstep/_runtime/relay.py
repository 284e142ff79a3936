"""Passes bytes on between pairs of connections, on one thread."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections import deque
from dataclasses import dataclass, field

_CHUNK = 65536
# Bytes of one direction that wait for a slow reader; then nothing more is read for it.
_MOST_WAITING = 1 << 20


@dataclass(eq=False)
class _End:
    """One end of a pair: what is still to be sent to it."""

    sock: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    other: _End | None = None
    # Whether there is more to read from it.
    is_open: bool = True


class Relay:
    """Pairs of connections. Bytes of the one go to the other, in order; when one ends, so does the other."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._new: deque[tuple[socket.socket, socket.socket, bytes]] = deque()
        self._bell, ring = socket.socketpair()
        self._ring = ring
        self._open: set[socket.socket] = {self._bell, ring}
        for s in (self._bell, ring):
            s.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        # A forked process must not make this one's end look like life.
        os.register_at_fork(after_in_child=self.forget)
        self._thread = threading.Thread(target=self._run, name="lockstep-relay", daemon=True)
        self._thread.start()

    def add(self, one: socket.socket, other: socket.socket, first: bytes = b"") -> None:
        """Connects two sockets, which are closed later; from any thread.

        Args:
            one: A connection.
            other: A connection.
            first: Bytes that were read from `other` already.
        """
        self._new.append((one, other, first))
        with contextlib.suppress(BlockingIOError):  # It rings anyway.
            self._ring.send(b"!")

    def forget(self) -> None:
        """Gives all connections up, in a process that has inherited them; they stay open."""
        for sock in self._open:
            sock.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select():
                if key.data is None:
                    self._take_new()
                elif key.data.sock.fileno() >= 0:
                    self._serve(key.data, events)

    def _take_new(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(_CHUNK)
        while self._new:
            one, other, first = self._new.popleft()
            a, b = _End(one, bytearray(first)), _End(other)
            a.other, b.other = b, a
            self._open.update((one, other))
            for end in (a, b):
                end.sock.setblocking(False)
                self._selector.register(end.sock, selectors.EVENT_READ, end)
            self._flush(a)

    def _serve(self, end: _End, events: int) -> None:
        assert end.other is not None
        if events & selectors.EVENT_WRITE:
            self._flush(end)
        if events & selectors.EVENT_READ and end.sock.fileno() >= 0:
            try:
                data = end.sock.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            end.is_open = bool(data)
            end.other.waiting += data
            self._flush(end.other)

    def _flush(self, end: _End) -> None:
        """Sends what can be sent, and says what is waited for from now on."""
        other = end.other
        assert other is not None
        try:
            while end.waiting:
                del end.waiting[: end.sock.send(end.waiting[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            end.waiting.clear()
            end.is_open = other.is_open = False
        if not end.waiting and not other.is_open:
            self._end(end, other)
            return
        self._listen(end)
        self._listen(other)

    def _listen(self, end: _End) -> None:
        assert end.other is not None
        reads = end.is_open and len(end.other.waiting) < _MOST_WAITING
        wanted = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if end.waiting else 0)
        known = end.sock in self._selector.get_map()
        if wanted and known:
            self._selector.modify(end.sock, wanted, end)
        elif wanted:
            self._selector.register(end.sock, wanted, end)
        elif known:
            self._selector.unregister(end.sock)

    def _end(self, *ends: _End) -> None:
        for end in ends:
            with contextlib.suppress(KeyError):
                self._selector.unregister(end.sock)
            end.sock.close()
            self._open.discard(end.sock)
