"""Arrival: every task of a cluster reports to the first one before jax.distributed starts.

jax's own coordination service ends the process from C++ when a task stays away, and cannot say who. This protocol
comes first, on the address that the service takes over afterwards: each task sends one line of JSON (who it is, which
cluster it sees, which versions it runs) and receives one line, the verdict. A verdict other than "go" is the same
error on every task that arrived.

Bytes from strangers are bounded (`_LINE_BYTES` a connection, `_MAX_STRANGERS` connections), never evaluated, and have
no effect.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep._runtime import addresses
from lockstep.errors import (
    ClusterSpecError,
    JoinError,
    LockstepError,
    MismatchError,
    MissingTaskError,
    PeerError,
)

_LINE_BYTES = 1 << 18
_MAX_STRANGERS = 4096
# A task that waits for the verdict allows the first task this much longer than its own limit.
_GRACE_SECONDS = 2.0
_RETRY_SECONDS = 0.1
_VERDICTS: dict[str, type[LockstepError]] = {
    e.__name__: e for e in (JoinError, MismatchError, MissingTaskError, ClusterSpecError)
}


@dataclass(frozen=True)
class Roll:
    """The tasks that must arrive, in process order, and where each lives."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]

    def describe(self, which: list[int]) -> str:
        """Lists tasks as "worker 1 (10.0.0.2:2222)"."""
        return ", ".join(f"{self.names[i]} ({self.addresses[i]})" for i in which) or "nobody"


@dataclass
class _Peer:
    """One connection to the first task: what it sent so far and, once known, who it is."""

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    process: int | None = None


class Host:
    """The first task's side: collects arrivals, then tells everyone the verdict."""

    def __init__(self, roll: Roll, hello: Mapping[str, Any], check: Callable[[list[Any]], str | None]) -> None:
        self._roll = roll
        self._hellos: dict[int, Mapping[str, Any]] = {0: hello}
        # Those who wait for the verdict, also one that is no task of this cluster.
        self._arrived: dict[int, socket.socket] = {}
        self._check = check
        self._selector = selectors.DefaultSelector()
        self._server = addresses.listen(roll.addresses[0], roll.names[0])

    def collect(self, seconds: float) -> None:
        """Waits for every task; then the port is free again and everyone waits for `release`.

        Raises:
            MissingTaskError: If a task has not arrived after `seconds`.
            MismatchError: If the tasks disagree about the cluster or the versions, or one comes twice.
        """
        try:
            self._gather(time.monotonic() + seconds, seconds)
            if problem := self._check([self._hellos[i] for i in range(len(self._roll.names))]):
                raise MismatchError(problem)
        except LockstepError as error:
            self._tell({"error": type(error).__name__, "message": str(error)})
            self.close()
            raise
        finally:
            self._stop_listening()

    def release(self) -> None:
        """Tells every task to go on."""
        self._tell({"go": True})
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        for sock in self._arrived.values():
            sock.close()
        self._arrived.clear()

    def _gather(self, deadline: float, seconds: float) -> None:
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)
        while len(self._hellos) < len(self._roll.names):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                if problem := self._check([self._hellos[i] for i in sorted(self._hellos)]):
                    raise MismatchError(problem)
                raise MissingTaskError(self._missing(seconds))
            for key, _ in self._selector.select(remaining):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)

    def _accept(self) -> None:
        try:
            sock, _ = self._server.accept()
        except OSError:  # Out of file descriptors, perhaps.
            self._drop_oldest_stranger()
            return
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, _Peer(sock))
        if len(self._selector.get_map()) - len(self._arrived) > _MAX_STRANGERS:
            self._drop_oldest_stranger()

    def _drop_oldest_stranger(self) -> None:
        """Makes room: a task says at once who it is, so whoever has been silent for longest is none."""
        peers = (key.data for key in self._selector.get_map().values())
        stranger = next((p for p in peers if p is not None and p.process is None), None)
        if stranger is not None:
            self._drop(stranger)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if peer.process is not None:
            self._forget(peer, data)
            return
        peer.received += data
        if not data or len(peer.received) > _LINE_BYTES:
            self._drop(peer)
        elif peer.received.endswith(b"\n"):
            self._welcome(peer)

    def _welcome(self, peer: _Peer) -> None:
        hello = _parse(bytes(peer.received))
        if hello is None or not _is_hello(hello):
            self._drop(peer)
            return
        index = hello["process"]
        if index in self._hellos:
            self._refuse(peer, index)
            return
        self._arrived[index] = peer.sock
        if index >= len(self._roll.names):
            raise MismatchError(self._check([self._hellos[0], hello]) or f"Unknown task: {hello['task']!r}.")
        peer.process = index
        self._hellos[index] = hello

    def _forget(self, peer: _Peer, data: bytes) -> None:
        """A task that has arrived and goes before all have is missing again; its successor may come."""
        if not data:
            assert peer.process is not None
            del self._hellos[peer.process], self._arrived[peer.process]
            self._drop(peer)

    def _refuse(self, peer: _Peer, index: int) -> None:
        """Turns away a second process that says it is a task which has already arrived."""
        _send(
            peer.sock,
            {
                "error": "JoinError",
                "message": f"Each task of a cluster runs once. {self._roll.describe([index])} has already arrived: "
                "this process has the same task in TF_CONFIG. Give it the index of its own, or stop the other one.",
            },
        )
        self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.sock)
        peer.sock.close()

    def _missing(self, seconds: float) -> str:
        arrived = sorted(self._hellos)
        missing = [i for i in range(len(self._roll.names)) if i not in self._hellos]
        return (
            f"Every task must arrive within {seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). "
            f"Arrived: {self._roll.describe(arrived)}. Missing: {self._roll.describe(missing)}. Start the missing "
            "tasks, or check that they can reach the first one and have the same cluster in TF_CONFIG."
        )

    def _stop_listening(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Peer) and key.data.sock not in self._arrived.values():
                key.data.sock.close()
        self._selector.close()
        self._server.close()

    def _tell(self, verdict: Mapping[str, Any]) -> None:
        for sock in self._arrived.values():
            sock.setblocking(True)
            sock.settimeout(_GRACE_SECONDS)
            _send(sock, verdict)


def report(roll: Roll, process: int, hello: Mapping[str, Any], seconds: float) -> None:
    """Another task's side: reports to the first task and waits for its verdict.

    Raises:
        MissingTaskError: If the first task cannot be reached, or somebody else is missing.
        MismatchError: If the tasks disagree about the cluster or the versions.
        PeerError: If the first task ends while this one waits.
    """
    deadline = time.monotonic() + seconds
    with _connect(roll, process, deadline, seconds) as sock:
        sock.settimeout(max(deadline - time.monotonic(), 0.0) + _GRACE_SECONDS)
        _send(sock, {**hello, "lockstep": True, "process": process})
        try:
            answer = _read_line(sock)
        except OSError as error:
            raise MissingTaskError(_unreachable(roll, process, seconds, "does not answer")) from error
    verdict = _parse(answer)
    if verdict is None:
        raise PeerError(
            f"The first task must stay until all have arrived. {roll.describe([0])} ended, something else answers at "
            f"its address, or the cluster runs already, with another process as {roll.names[process]}. Look at the "
            "output of both for the first cause."
        )
    if "error" in verdict:
        raise _VERDICTS.get(str(verdict["error"]), JoinError)(str(verdict.get("message")))


def _connect(roll: Roll, process: int, deadline: float, seconds: float) -> socket.socket:
    target = addresses.resolve(roll.addresses[0], roll.names[0])
    while True:
        try:
            return socket.create_connection(target, timeout=max(deadline - time.monotonic(), _RETRY_SECONDS))
        except OSError as error:
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise MissingTaskError(_unreachable(roll, process, seconds, str(error))) from error
            time.sleep(_RETRY_SECONDS)


def _unreachable(roll: Roll, process: int, seconds: float, why: str) -> str:
    return (
        f"Every task must arrive within {seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). Arrived: {roll.describe([process])}. "
        f"Missing: {roll.describe([0])}, to which all others report ({why}). Start it, or check that its address can "
        "be reached from here."
    )


def _send(sock: socket.socket, value: Mapping[str, Any]) -> None:
    try:
        sock.sendall(json.dumps(value).encode() + b"\n")
    except OSError:
        return  # Whoever has gone is noticed by whoever waits for it.


def _read_line(sock: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) <= _LINE_BYTES:
        data = sock.recv(65536)
        if not data:
            break
        received += data
    return bytes(received)


def _is_hello(value: Mapping[str, Any]) -> bool:
    """Whether this is what a task says of itself, and not what a stranger sends."""
    index = value.get("process")
    return (
        value.get("lockstep") is True
        and (type(index) is int and index > 0)
        and isinstance(value.get("task"), str)
        and isinstance(value.get("cluster"), dict)
        and isinstance(value.get("versions"), dict)
    )


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
