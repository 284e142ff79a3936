"""A listening socket that serves authenticated peers only.

Unauthenticated peers cost a bounded number of connections, bytes and seconds, and have no effect. Nothing they send is
evaluated.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep._engine.runtime import authentication
from lockstep._engine.runtime.authentication import (
    CALLER,
    FILE_VARIABLE,
    LINE_BYTES,
    LISTENER,
    NONCE_LINE_BYTES,
    VARIABLE,
    Secret,
    Session,
)

_log = logging.getLogger("lockstep")
# Connections at once, and one in so many of the descriptors that this process may have. All tasks of a job may arrive
# at once and are unauthenticated at first, so it must exceed the largest job.
_MAX_UNAUTHENTICATED = 4096
_SHARE_OF_DESCRIPTORS = 4
# When all tasks have arrived, only those that were started again by mistake come, or connect again after a cut.
_MAX_LATE = 64
# A task sends its nonce at once; a packet that is lost comes again after 1, 3 and 7 s.
_UNAUTHENTICATED_SECONDS = 10.0
# Of all together: 4096 connections with the 16 KiB that a hello of some hundred tasks takes.
_UNAUTHENTICATED_BYTES = 64 << 20
_TICK_SECONDS = 1.0
# When there are no descriptors left, and no peer to take one from.
_EXHAUSTED_SECONDS = 0.05
# Addresses that are logged; a peer with many of them should not fill the log.
_MAX_LOGGED = 16


@dataclass(eq=False)
class Connection:
    """A connection from a peer, authenticated or not yet.

    Attributes:
        sock: The connection.
        ip: The peer's IP address.
        since: When it connected, by the monotonic clock.
        received: The beginning of a line.
        session: Signs its lines, once nonces were exchanged.
        is_authenticated: Whether it has proven that it knows the secret.
        has_hello: Whether it has sent its hello, which says which task it is.
    """

    sock: socket.socket
    ip: str
    since: float
    received: bytearray = field(default_factory=bytearray)
    session: Session | None = None
    is_authenticated: bool = False
    has_hello: bool = False

    def send(self, value: dict[str, Any]) -> None:
        """Sends a signed answer to an authenticated peer."""
        assert self.session is not None and self.is_authenticated
        authentication.send(self.sock, self.session.sign("answer", value))


class AuthenticatedListener:
    """Accepts TCP connections and serves those that prove knowledge of the job's secret.

    Unauthenticated connections are bounded in number, bytes and seconds; the oldest is dropped first.

    Args:
        servers: Listening sockets; they are closed with the listener.
        secret: The secret that peers must know.
        whose: The name of the task that listens, for logs.
        on_hello: Called with an authenticated connection and its hello.
        on_disconnect: Called with a connection that had sent its hello and closes.
        socket_dir: This process' private directory; hellos can show that their sender can enter it.
    """

    def __init__(
        self,
        servers: Sequence[socket.socket],
        secret: Secret,
        whose: str,
        on_hello: Callable[[Connection, dict[str, Any]], None],
        on_disconnect: Callable[[Connection], None],
        socket_dir: str | None = None,
    ) -> None:
        self._servers = tuple(servers)
        self._secret = secret
        self._whose = whose
        self.on_hello = on_hello
        self.on_disconnect = on_disconnect
        self._socket_dir = socket_dir
        self._selector = selectors.DefaultSelector()
        # Those without a hello; a dict keeps the order in which they came.
        self._unauthenticated: dict[Connection, None] = {}
        self._bytes = 0
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = soft if soft != resource.RLIM_INFINITY else 1 << 20
        self._backlog = min(_MAX_UNAUTHENTICATED, descriptors // _SHARE_OF_DESCRIPTORS)
        self._logged: set[str] = set()
        for server in self._servers:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)

    def listen(self, seconds: float) -> None:
        """Serves connections for up to `seconds`; returns early, at the latest after a second."""
        for key, _ in self._selector.select(max(0.0, min(seconds, _TICK_SECONDS))):
            if isinstance(key.fileobj, socket.socket) and key.data is None:
                self._accept(key.fileobj)
            elif key.data.sock.fileno() >= 0:  # It may have been dropped for the one before it.
                self._read(key.data)
        limit = time.monotonic() - _UNAUTHENTICATED_SECONDS
        while (oldest := next(iter(self._unauthenticated), None)) is not None and oldest.since < limit:
            self.refuse(oldest, "it was too slow to say who it is")

    def shrink_backlog(self) -> None:
        """Allows few unauthenticated connections from now on, and drops those that are open."""
        self._backlog = min(_MAX_LATE, self._backlog)
        while self._drop_oldest():
            pass

    def close(self) -> None:
        """Stops listening, and closes every connection that was not released."""
        for key in list((self._selector.get_map() or {}).values()):
            if key.data is not None:
                key.data.sock.close()
        self._selector.close()
        for server in self._servers:
            server.close()

    def release(self, connection: Connection) -> None:
        """Serves a connection no more, and leaves it open for its new owner."""
        self._forget(connection)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection.sock)

    def drop(self, connection: Connection) -> None:
        """Closes a connection."""
        self.release(connection)
        connection.sock.close()

    def turn_away(self, connection: Connection, problem: str) -> None:
        """Tells an authenticated peer why it cannot take part, and closes its connection."""
        connection.send({"error": "JoinError", "message": problem})
        self.drop(connection)

    def refuse(self, connection: Connection, why: str) -> None:
        """Closes the connection of a peer that is no task; logs it once for each address."""
        self.drop(connection)
        if connection.ip in self._logged or len(self._logged) >= _MAX_LOGGED:
            return
        self._logged.add(connection.ip)
        more = "" if len(self._logged) < _MAX_LOGGED else " Further addresses are not logged."
        _log.warning(
            "A connection from %s was refused at the address of %s: %s.%s", connection.ip, self._whose, why, more
        )

    def _accept(self, server: socket.socket) -> None:
        try:
            sock, address = server.accept()
        except BlockingIOError:
            return
        except OSError:  # Out of file descriptors, perhaps.
            if not self._drop_oldest():
                time.sleep(_EXHAUSTED_SECONDS)
            return
        sock.setblocking(False)
        connection = Connection(sock, str(address[0]), time.monotonic())
        self._unauthenticated[connection] = None
        self._selector.register(sock, selectors.EVENT_READ, connection)
        while len(self._unauthenticated) > self._backlog:
            self._drop_oldest()

    def _drop_oldest(self) -> bool:
        # A task says at once who it is, so the peer that has been silent for longest is none.
        oldest = next(iter(self._unauthenticated), None)
        if oldest is None:
            return False
        self.drop(oldest)
        return True

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if connection.has_hello:
            if not data:
                self.on_disconnect(connection)
            return
        connection.received += data
        self._bytes += len(data)
        if not data:
            self.drop(connection)
        elif len(connection.received) > (LINE_BYTES if connection.is_authenticated else NONCE_LINE_BYTES):
            self.refuse(connection, "what it says is too long")
        elif connection.received.endswith(b"\n"):
            said = bytes(connection.received)
            self._bytes -= len(said)
            connection.received.clear()
            self._handle(connection, said)
        elif self._bytes > _UNAUTHENTICATED_BYTES:
            self._drop_oldest()

    def _handle(self, connection: Connection, said: bytes) -> None:
        """Handles a line of a peer without a hello: its nonce, its HMAC, then the hello."""
        if connection.session is None:
            first = authentication.parse_nonce_line(said)
            if first is None:
                self.refuse(connection, "it is no task of a cluster")
                return
            mine = authentication.new_nonce()
            connection.session = Session(self._secret, first["nonce"], mine)
            authentication.send(connection.sock, authentication.nonce_line(mine, secret=self._secret.is_set))
        elif not connection.is_authenticated:
            self._authenticate(connection, connection.session, said)
        elif (hello := connection.session.verify("hello", said)) is None:
            self.refuse(connection, "it is no task of a cluster")
        else:
            connection.has_hello = True
            self._forget(connection)
            self.on_hello(connection, hello)

    def _authenticate(self, connection: Connection, session: Session, said: bytes) -> None:
        if session.verify(CALLER, said) is not None:
            connection.is_authenticated = True
            # Only now an HMAC of this side: before, it would be something to try out secrets on.
            authentication.send(connection.sock, session.sign(LISTENER, {"door": self._socket_dir}))
        elif not self._secret.is_set:
            self.refuse(connection, "it is no task of a cluster")
        else:
            authentication.send(connection.sock, authentication.line(authentication.REFUSED))
            self.refuse(connection, f"it does not know the secret ({VARIABLE} or {FILE_VARIABLE})")

    def _forget(self, connection: Connection) -> None:
        """Counts a connection among the unauthenticated no more."""
        if connection in self._unauthenticated:
            del self._unauthenticated[connection]
            self._bytes -= len(connection.received)
            connection.received.clear()
