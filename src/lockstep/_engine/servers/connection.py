"""Connections between the tasks of a job with parameter servers: frames over TCP, after the cluster's handshake.

Whoever connects proves that it knows the job's secret (`_engine/runtime/authentication`) before a byte of it is taken
for a message; strangers cost what they cost at the rendezvous. With `LOCKSTEP_MTLS_*` the connection becomes TLS after
that, with certificates of both sides.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep._engine.runtime import addresses, authentication, environment, fingerprint
from lockstep._engine.runtime.authenticated_listener import AuthenticatedListener, Connection
from lockstep._engine.runtime.limits import Deadline, Limits
from lockstep._engine.runtime.rendezvous import Roster, check_attempt, is_hello
from lockstep._engine.runtime.rendezvous_client import RendezvousClient
from lockstep._engine.servers.messages import (
    BEAT,
    HEADER,
    MAX_ARRAYS,
    MAX_JSON,
    MESSAGE,
    Message,
    ProtocolError,
    decode,
)
from lockstep.errors import ArgumentError, JoinError, MismatchError, MissingTaskError, PeerError

_log = logging.getLogger("lockstep")
# Buffers in one call of sendmsg; Linux and macOS take 1024.
_MAX_BUFFERS = 512
_MTLS = ("LOCKSTEP_MTLS_CERT", "LOCKSTEP_MTLS_KEY", "LOCKSTEP_MTLS_CA")
_LISTEN_SECONDS = 1.0
# Seconds between two probes of a connection that is silent, and probes until it counts as broken.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
# A task that was started again waits for the connection of its former process to end.
_RETRY_ANSWER = "retry"


class FrameSocket:
    """A connection that carries frames.

    Attributes:
        heard: When a sign of life came last, before an answer, by the monotonic clock; 0 if none has.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.heard = 0.0
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE.items():
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._header = bytearray(HEADER.size)

    def settimeout(self, seconds: float | None) -> None:
        """Limits each send and receive."""
        self._sock.settimeout(seconds)

    def close(self) -> None:
        """Closes the connection, also for a thread that reads from it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def send(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Sends buffers, one after another, without joining them."""
        if isinstance(self._sock, ssl.SSLSocket):
            for buffer in buffers:
                self._sock.sendall(buffer)
            return
        left = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while left:
            sent = self._sock.sendmsg(left[:_MAX_BUFFERS])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def read_into(self, view: memoryview) -> None:
        """Fills `view`; `ConnectionError` if the other side hangs up."""
        while len(view):
            count = self._sock.recv_into(view)
            if not count:
                raise ConnectionAbortedError("it hangs up")
            view = view[count:]

    def read(self, size: int) -> bytearray:
        """Returns the next `size` bytes."""
        data = bytearray(size)
        self.read_into(memoryview(data))
        return data

    def read_header(self) -> tuple[int, int, int]:
        """Returns the kind of the next frame, the bytes of its first part, and those of its arrays.

        Raises:
            ProtocolError: If it is larger than any that a task sends.
        """
        self.read_into(memoryview(self._header))
        kind, first, arrays = HEADER.unpack(self._header)
        if first > MAX_JSON or arrays > MAX_ARRAYS:
            raise ProtocolError(f"a frame of {first} and {arrays} bytes")
        return kind, first, arrays

    def read_header_of_answer(self) -> tuple[int, int, int]:
        """Returns the header of an answer, as `read_header`; signs of life may come before it."""
        while (header := self.read_header())[0] == BEAT:
            self.heard = time.monotonic()
        return header

    def read_answer(self) -> Message:
        """Returns the answer to a message, which must be one."""
        kind, first, arrays = self.read_header_of_answer()
        if kind != MESSAGE:
            raise ProtocolError(f"a frame of kind {kind}")
        return decode(self.read(first), arrays, self.read_into)


BEAT_FRAME = HEADER.pack(BEAT, 0, 0)


class Service(Protocol):
    """Serves those that a listening task has admitted."""

    def arrive(self, task: str, incarnation: str) -> str | None:
        """Returns why a task cannot take part now, or `None`."""
        ...

    def serve(self, task: str, incarnation: str, frames: FrameSocket) -> None:
        """Serves a connection until it ends; called in a thread of its own."""
        ...


class Listener:
    """Listens on a task's address, admits tasks of the job, and serves each in a thread.

    Args:
        roster: This task's name and address first, then those of others; errors and warnings name them.
        cluster: Addresses that all tasks must have been given alike.
        service: Serves the tasks that are admitted.
        secret: The job's secret.
        seconds: For the address to resolve.

    Raises:
        AddressError: If this task cannot listen on its address.
    """

    def __init__(
        self,
        roster: Roster,
        cluster: Mapping[str, Any],
        service: Service,
        secret: authentication.Secret,
        seconds: float,
    ) -> None:
        self._roster, self._cluster, self._service = roster, cluster, service
        self._tls = tls_context(server_side=True)
        self._is_closed = False
        sockets = addresses.listen(roster.addresses[0], roster.names[0], roster.addresses[1:], Deadline(seconds))
        self._listener = AuthenticatedListener(sockets, secret, roster.names[0], self._on_hello, self._drop)
        # A forked process must not keep the address when this one has gone.
        os.register_at_fork(after_in_child=self._listener.close)
        threading.Thread(target=self._run, name="lockstep-listener", daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._is_closed = True

    def _run(self) -> None:
        while not self._is_closed:
            self._listener.listen(_LISTEN_SECONDS)
        self._listener.close()

    def _drop(self, connection: Connection) -> None:
        self._listener.drop(connection)

    def _on_hello(self, connection: Connection, hello: dict[str, Any]) -> None:
        incarnation = hello.get("incarnation")
        if not is_hello(hello) or hello.get("wants") != "servers" or not isinstance(incarnation, str):
            self._listener.refuse(connection, "it is no task of this job")
            return
        task = hello["task"][:100]
        problem = check_attempt(self._roster, hello)
        ours = {"cluster": dict(self._cluster), "versions": fingerprint.installed_versions()}
        theirs = {name: hello[name] for name in ours}
        if not problem and (found := fingerprint.first_difference([ours, theirs], [self._roster.names[0], task])):
            problem = (
                f"All tasks must see the same chief and servers, and have the same versions. {found}. Give every task "
                "the same TF_CONFIG cluster, and the same environment."
            )
        if problem:
            self._listener.turn_away(connection, problem)
            return
        if why := self._service.arrive(task, incarnation):
            connection.send({_RETRY_ANSWER: why})
            self._listener.drop(connection)
            return
        connection.send({"go": True})
        self._listener.release(connection)
        run = threading.Thread(target=self._serve, args=(connection.sock, task, incarnation), daemon=True)
        run.name = f"lockstep-{task}"
        run.start()

    def _serve(self, sock: socket.socket, task: str, incarnation: str) -> None:
        sock.setblocking(True)
        try:
            if self._tls is not None:
                sock.settimeout(Limits.silence)
                sock = self._tls.wrap_socket(sock, server_side=True)
                sock.settimeout(None)
        except OSError as error:
            _log.warning("%s was refused: %s", task, error)
            sock.close()
            return
        frames = FrameSocket(sock)
        try:
            self._service.serve(task, incarnation, frames)
        except (OSError, ProtocolError) as error:
            _log.debug("the connection of %s has ended: %s", task, error)
        finally:
            frames.close()


@dataclass(frozen=True)
class Caller:
    """The task that connects, as it presents itself to the others.

    Attributes:
        task: Its name.
        address: Its address, or "" if nobody connects to it.
        incarnation: Its process.
        cluster: Addresses that all tasks must have been given alike.
        secret: The job's secret.
    """

    task: str
    address: str
    incarnation: str
    cluster: Mapping[str, Any]
    secret: authentication.Secret

    def connect(self, task: str, address: str, seconds: float) -> FrameSocket:
        """Connects to a task that listens, which may start later.

        Raises:
            MissingTaskError: If it cannot be reached within `seconds`.
            JoinError: If it does not receive this one.
            PeerError: If something else answers.
        """
        roster = Roster((task, self.task), (address, self.address), environment.attempt())
        hello = {"task": self.task, "cluster": dict(self.cluster), "versions": fingerprint.installed_versions()}
        client = RendezvousClient(roster, 1, hello, self.secret)
        deadline = Deadline(seconds)
        while True:
            sock, answer = client.connect(max(deadline.left, 0.01), wants="servers", incarnation=self.incarnation)
            if answer.get("go") is True:
                break
            sock.close()
            why = str(answer.get(_RETRY_ANSWER))
            if not deadline.can_retry:
                raise JoinError(why)
            deadline.report(lambda why=why: why)
            deadline.pause()
        sock.settimeout(Limits.silence)
        if (tls := tls_context(server_side=False)) is not None:
            sock = tls.wrap_socket(sock)
        return FrameSocket(sock)


def unwrap_answer(answer: Message, whose: str) -> Message:
    """Returns an answer, or raises the error that it holds, of a few known classes."""
    if answer.kind != "error":
        return answer
    kinds = {"MismatchError": MismatchError, "MissingTaskError": MissingTaskError, "JoinError": JoinError}
    raise kinds.get(str(answer.facts.get("error")), PeerError)(str(answer.facts.get("message") or whose))


def tls_context(*, server_side: bool) -> ssl.SSLContext | None:
    """Returns the context of `LOCKSTEP_MTLS_CERT` and its siblings, which both sides must have; `None` without them.

    Raises:
        ArgumentError: If some but not all files are named, or one is not there.
    """
    given = [os.environ.get(name) for name in _MTLS]
    if not any(given):
        return None
    for name, path in zip(_MTLS, given, strict=True):
        if not path or not os.path.isfile(path):
            raise ArgumentError(
                f"mTLS takes three files: {', '.join(_MTLS)}. Received: {name}={path!r}. Set all three to files in PEM "
                "format, or none."
            )
    certificate, key, authority = map(str, given)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The authority vouches for tasks of this job; addresses of pods are in no certificate.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    return context


Handler = Callable[[str, Message], Message]
