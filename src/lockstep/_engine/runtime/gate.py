"""A listening socket at which only those are heard who show that they belong here.

Strangers cost a bounded number of connections, bytes and seconds, and have no effect. Nothing they send is evaluated.
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

from lockstep._engine.runtime import handshake
from lockstep._engine.runtime.handshake import CALLER, GREETING_BYTES, LINE_BYTES, LISTENER, Seal
from lockstep._engine.runtime.secret import FILE_VARIABLE, VARIABLE, Secret

_log = logging.getLogger("lockstep")
# At once; and of the descriptors that this process may have, one of so many. Tasks that arrive are strangers at first.
_MAX_STRANGERS = 4096
_SHARE_OF_DESCRIPTORS = 4
# When all tasks have arrived, hardly anybody is expected.
_MAX_LATE = 64
# A task says at once who it is. All strangers together may have sent so many bytes.
_STRANGER_SECONDS = 10.0
_STRANGER_BYTES = 64 << 20
_TICK_SECONDS = 1.0
# When there are no descriptors left, and nobody to take one from.
_EXHAUSTED_SECONDS = 0.05
# Addresses of strangers that are told of; whoever has many of them should not fill the log.
_MAX_TOLD = 16


@dataclass(eq=False)
class Caller:
    """One connection: what it sent so far and, once that is known, how to speak with it.

    Attributes:
        sock: The connection.
        ip: Where it comes from.
        since: When it came.
        received: What is not yet a line.
        seal: Of the conversation, after its greeting.
        is_proven: Whether it has proven that it knows the secret.
        is_heard: Whether it has said which task it is.
    """

    sock: socket.socket
    ip: str
    since: float
    received: bytearray = field(default_factory=bytearray)
    seal: Seal | None = None
    is_proven: bool = False
    is_heard: bool = False

    def tell(self, value: dict[str, Any]) -> None:
        """Says something to a caller that has proven itself."""
        assert self.seal is not None and self.is_proven
        handshake.send(self.sock, self.seal.write("answer", value))


class Gate:
    """Hears callers.

    Args:
        servers: Sockets that listen; they are closed with the gate.
        secret: What callers must know.
        whose: The task that listens, for logs.
        on_hello: Is told what a caller says of itself; `None` while nobody can be received.
        on_gone: Is told of a caller that was heard and hangs up.
        door: A directory on this machine; what callers say can show that they see it too.
    """

    def __init__(
        self,
        servers: Sequence[socket.socket],
        secret: Secret,
        whose: str,
        on_hello: Callable[[Caller, dict[str, Any]], None],
        on_gone: Callable[[Caller], None],
        door: str | None = None,
    ) -> None:
        self._servers = tuple(servers)
        self._secret = secret
        self._whose = whose
        self.on_hello = on_hello
        self.on_gone = on_gone
        self._door = door
        self._selector = selectors.DefaultSelector()
        # Those that were not heard, the first to come first.
        self._strangers: dict[Caller, None] = {}
        self._bytes = 0
        self._most = min(_MAX_STRANGERS, _descriptors() // _SHARE_OF_DESCRIPTORS)
        self._told: set[str] = set()
        for server in self._servers:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)

    def listen(self, seconds: float) -> None:
        """Serves those that come within `seconds`, or some of them; returns early."""
        for key, _ in self._selector.select(max(0.0, min(seconds, _TICK_SECONDS))):
            if isinstance(key.fileobj, socket.socket) and key.data is None:
                self._accept(key.fileobj)
            elif key.data.sock.fileno() >= 0:  # It may have been dropped for the one before it.
                self._read(key.data)
        self._drop_slow()

    def expect_few(self) -> None:
        """Takes less room for strangers from now on, and hangs up on those who are here."""
        self._most = min(_MAX_LATE, self._most)
        while self._drop_oldest():
            pass

    def close(self) -> None:
        """Stops listening, and hangs up on everybody that was not let go."""
        for key in list((self._selector.get_map() or {}).values()):
            if key.data is not None:
                key.data.sock.close()
        self._selector.close()
        for server in self._servers:
            server.close()

    def let_go(self, caller: Caller) -> None:
        """Hears no more of a caller, whose connection stays open."""
        self._forget(caller)
        with contextlib.suppress(KeyError):
            self._selector.unregister(caller.sock)

    def drop(self, caller: Caller) -> None:
        """Hangs up on a caller."""
        self.let_go(caller)
        caller.sock.close()

    def turn_away(self, caller: Caller, problem: str) -> None:
        """Tells a caller that was heard why it cannot take part, and hangs up."""
        caller.tell({"error": "JoinError", "message": problem})
        self.drop(caller)

    def refuse(self, caller: Caller, why: str) -> None:
        """Hangs up on a caller that does not belong here; the log is told, once of each address."""
        self.drop(caller)
        if caller.ip in self._told or len(self._told) >= _MAX_TOLD:
            return
        self._told.add(caller.ip)
        more = "" if len(self._told) < _MAX_TOLD else " Further addresses are not told of."
        _log.warning("A caller from %s was refused at the address of %s: %s.%s", caller.ip, self._whose, why, more)

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
        caller = Caller(sock, str(address[0]), time.monotonic())
        self._strangers[caller] = None
        self._selector.register(sock, selectors.EVENT_READ, caller)
        while len(self._strangers) > self._most:
            self._drop_oldest()

    def _drop_oldest(self) -> bool:
        """Makes room: a task says at once who it is, so whoever has been silent for longest is none."""
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        self.drop(oldest)
        return True

    def _drop_slow(self) -> None:
        limit = time.monotonic() - _STRANGER_SECONDS
        while (oldest := next(iter(self._strangers), None)) is not None and oldest.since < limit:
            self.refuse(oldest, "it was too slow to say who it is")

    def _read(self, caller: Caller) -> None:
        try:
            data = caller.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if caller.is_heard:
            if not data:
                self.on_gone(caller)
            return
        self._take(caller, data)

    def _take(self, caller: Caller, data: bytes) -> None:
        caller.received += data
        self._bytes += len(data)
        limit = LINE_BYTES if caller.is_proven else GREETING_BYTES
        if not data:
            self.drop(caller)
        elif len(caller.received) > limit:
            self.refuse(caller, "what it says is too long")
        elif caller.received.endswith(b"\n"):
            self._understand(caller)
        elif self._bytes > _STRANGER_BYTES:
            self._drop_oldest()

    def _understand(self, caller: Caller) -> None:
        said = bytes(caller.received)
        self._bytes -= len(said)
        caller.received.clear()
        if caller.seal is None:
            self._answer(caller, handshake.greeted(said))
        elif not caller.is_proven:
            self._authenticate(caller, caller.seal.read(CALLER, said) is not None)
        elif (hello := caller.seal.read("hello", said)) is None:
            self.refuse(caller, "it is no task of a cluster")
        else:
            caller.is_heard = True
            self._forget(caller)
            self.on_hello(caller, hello)

    def _answer(self, caller: Caller, greeting: dict[str, Any] | None) -> None:
        if greeting is None:
            self.refuse(caller, "it is no task of a cluster")
            return
        mine = handshake.new_nonce()
        caller.seal = Seal(self._secret, greeting["nonce"], mine)
        handshake.send(caller.sock, handshake.greeting(mine, secret=self._secret.is_set))

    def _authenticate(self, caller: Caller, is_proven: bool) -> None:
        """Answers a caller's proof with this side's; whoever has not proven itself gets nothing under the secret."""
        assert caller.seal is not None
        if is_proven:
            caller.is_proven = True
            handshake.send(caller.sock, caller.seal.prove(LISTENER, door=self._door))
            return
        if not self._secret.is_set:
            self.refuse(caller, "it is no task of a cluster")
            return
        handshake.send(caller.sock, handshake.line(handshake.REFUSED))
        self.refuse(caller, f"it does not know the secret ({VARIABLE} or {FILE_VARIABLE})")

    def _forget(self, caller: Caller) -> None:
        """It is no stranger any more, whatever it is now."""
        if caller in self._strangers:
            del self._strangers[caller]
            self._bytes -= len(caller.received)
            caller.received.clear()


def _descriptors() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20
