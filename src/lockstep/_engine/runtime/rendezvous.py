"""Rendezvous: every task of a cluster reports to the first one before jax.distributed starts.

jax's own coordination service ends the process from C++ when a task stays away, and cannot say who. This protocol
comes first, on the address that the cluster names for the first task: after the handshake (`authentication`) each task
sends a hello, one line with its name, the cluster that it sees, its versions and its attempt at the job, and receives
one line, the verdict. A verdict other than "go" is the same error on every task that arrived.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep._engine.runtime import addresses
from lockstep._engine.runtime.authenticated_listener import AuthenticatedListener, Connection
from lockstep._engine.runtime.authentication import Secret
from lockstep._engine.runtime.limits import Deadline, Limits
from lockstep._engine.runtime.unix_sockets import SocketDir
from lockstep.errors import (
    ClusterSpecError,
    JoinError,
    LockstepError,
    MismatchError,
    MissingTaskError,
)

# A task that waits for the verdict allows the first task this much longer than its own limit.
GRACE_SECONDS = 2.0
# In a report, which goes to the log of every task every ten seconds.
_MAX_NAMES = 20
# Of a process in a hello: a hostile one must not make this task keep a number without bounds.
_MAX_INDEX = 1 << 20
VERDICTS: dict[str, type[LockstepError]] = {
    e.__name__: e for e in (JoinError, MismatchError, MissingTaskError, ClusterSpecError)
}


@dataclass(frozen=True)
class Roster:
    """The tasks that must arrive, in process order, their addresses, and their attempt at the job."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    attempt: int = 0

    def describe(self, which: list[int]) -> str:
        """Lists tasks as "worker 1 (10.0.0.2:2222)"."""
        return ", ".join(f"{self.names[i]} ({self.addresses[i]})" for i in which) or "nobody"

    def outline(self, which: list[int]) -> str:
        """Lists tasks as `describe`, or the first of many."""
        more = len(which) - _MAX_NAMES
        return self.describe(which[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


class RendezvousServer:
    """The first task's side of the rendezvous: collects hellos, then sends everyone the verdict.

    Attributes:
        ip: The address of this machine that all tasks are to use for the first one, once `collect` has returned.

    Raises:
        AddressError: If the first task cannot listen on its address.
    """

    def __init__(
        self,
        roster: Roster,
        hello: Mapping[str, Any],
        check: Callable[[list[Any]], str | None],
        secret: Secret | None = None,
        socket_dir: SocketDir | None = None,
        seconds: float = Limits.join,
    ) -> None:
        self._deadline = Deadline(seconds)
        self._roster = roster
        self._hellos: dict[int, Mapping[str, Any]] = {0: hello}
        # The tasks that wait for the verdict, also one that is no task of this cluster.
        self._arrived: dict[int, Connection] = {}
        self._local: set[int] = {0}
        self._check = check
        self._socket_dir = socket_dir
        servers = addresses.listen(roster.addresses[0], roster.names[0], roster.addresses[1:], self._deadline)
        self._own = [str(server.getsockname()[0]) for server in servers]
        self.ip = self._own[0]
        directory = socket_dir.directory if socket_dir else None
        self._listener = AuthenticatedListener(
            servers, secret or Secret(), roster.names[0], self._on_hello, self._on_disconnect, directory
        )

    @property
    def are_all_local(self) -> bool:
        """Returns whether all tasks that have arrived are on this machine, and of this user."""
        return self._local.issuperset(self._hellos)

    def collect(self) -> AuthenticatedListener:
        """Waits for every task; then all wait for `release`. Returns the listener, which is not served now.

        Raises:
            MissingTaskError: If a task has not arrived at the limit.
            MismatchError: If the tasks disagree about the cluster or the versions, or one comes twice.
        """
        try:
            self._gather()
            if problem := self._check([self._hellos[i] for i in range(len(self._roster.names))]):
                raise MismatchError(problem)
        except BaseException as error:
            # Also for an interrupt: the others must not wait until their limit.
            kind = type(error).__name__ if isinstance(error, LockstepError) else "JoinError"
            self._send_all({"error": kind, "message": str(error) or repr(error)})
            self._listener.close()
            raise
        # The address to which most of the others have come. One of the loopback interface counts only if all have come
        # to that: tasks of this machine can reach the others too.
        ips = Counter(str(connection.sock.getsockname()[0]) for connection in self._arrived.values())
        counts = {ip: count for ip, count in ips.items() if not addresses.is_loopback(ip)} or ips
        self.ip = max(counts, key=lambda ip: (counts[ip], ip), default=self._own[0])
        for connection in self._arrived.values():
            self._listener.release(connection)
        self._listener.shrink_backlog()
        return self._listener

    def release(self, keep: Callable[[int, socket.socket], None] | None = None, **more: Any) -> None:
        """Sends every task the verdict "go", and what else it needs to know."""
        self._send_all({"go": True, **more})
        if keep is not None:
            for process, connection in self._arrived.items():
                keep(process, connection.sock)
            self._arrived.clear()
        self.close()

    def close(self) -> None:
        """Closes the connections of the tasks that have arrived."""
        for connection in self._arrived.values():
            connection.sock.close()
        self._arrived.clear()

    def _gather(self) -> None:
        while len(self._hellos) < len(self._roster.names):
            if not self._deadline.left:
                if problem := self._check([self._hellos[i] for i in sorted(self._hellos)]):
                    raise MismatchError(problem)
                raise MissingTaskError(self._missing())
            if state := self._deadline.report(self._state):
                for connection in self._arrived.values():
                    connection.send({"state": state})
            self._listener.listen(min(self._deadline.left, self._deadline.until_report()))

    def _on_hello(self, connection: Connection, hello: dict[str, Any]) -> None:
        if not is_hello(hello):
            self._listener.refuse(connection, "it is no task of a cluster")
            return
        if problem := check_attempt(self._roster, hello):
            self._listener.turn_away(connection, problem)
            return
        if "wants" in hello:
            # A task that lost its connection to an earlier process at this address.
            self._listener.turn_away(connection, "The first task has started again: a cluster starts anew with it.")
            return
        index = hello["process"]
        if index in self._hellos:
            self._listener.turn_away(
                connection,
                f"Each task of a cluster runs once. {self._roster.describe([index])} has already arrived: "
                "this process has the same task in TF_CONFIG. Give it the index of its own, or stop the other one.",
            )
            return
        self._arrived[index] = connection
        if index >= len(self._roster.names):
            raise MismatchError(self._check([self._hellos[0], hello]) or f"Unknown task: {hello['task']!r}.")
        self._hellos[index] = hello
        own, session = self._socket_dir, connection.session
        if own and session and hello.get("sees") == session.token_mac(own.token):
            self._local.add(index)

    def _on_disconnect(self, connection: Connection) -> None:
        # A task that goes before all have arrived is missing again; its successor may come.
        for index in [i for i, c in self._arrived.items() if c is connection]:
            del self._hellos[index], self._arrived[index]
            self._local.discard(index)
        self._listener.drop(connection)

    def _present(self) -> tuple[list[int], list[int]]:
        """Returns the processes that have arrived, and those that have not."""
        everyone = range(len(self._roster.names))
        return [i for i in everyone if i in self._hellos], [i for i in everyone if i not in self._hellos]

    def _state(self) -> str:
        here, missing = self._present()
        return f"Arrived: {self._roster.outline(here)}. Missing: {self._roster.outline(missing)}."

    def _missing(self) -> str:
        here, missing = self._present()
        loopback = [ip for ip in self._own if addresses.is_loopback(ip)]
        hint = (
            f" {self._roster.names[0]} listens on {', '.join(self._own)}, the loopback interface, which other machines "
            f"cannot reach. {addresses.LOOPBACK_ADVICE}"
            if len(loopback) == len(self._own) and not addresses.is_ip(addresses.split(self._roster.addresses[0])[0])
            else ""
        )
        return (
            f"Every task must arrive within {self._deadline.seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). "
            f"Arrived: {self._roster.describe(here)}. Missing: {self._roster.describe(missing)}. Start the missing "
            f"tasks, or check that they can reach the first one and have the same cluster in TF_CONFIG.{hint}"
        )

    def _send_all(self, verdict: dict[str, Any]) -> None:
        for connection in self._arrived.values():
            with contextlib.suppress(OSError):
                connection.sock.setblocking(True)
                connection.sock.settimeout(GRACE_SECONDS)
                connection.send(verdict)


class ServiceProxy(Protocol):
    """Connects tasks that take part to jax's service."""

    def admits(self, hello: Mapping[str, Any]) -> bool:
        """Returns whether the stream that a task names is a new one, or one that it resumes."""
        ...

    def take(self, link: socket.socket, hello: Mapping[str, Any]) -> None:
        """Takes over the connection of a task that `admits` was asked about."""
        ...


class LateJoinServer:
    """Serves the first task's address when all have arrived: connects those that take part, and refuses all others."""

    def __init__(self, listener: AuthenticatedListener, roster: Roster, service_proxy: ServiceProxy | None) -> None:
        self._listener = listener
        self._roster = roster
        self._service_proxy = service_proxy
        listener.on_hello, listener.on_disconnect = self._on_hello, listener.drop
        # A forked process must not keep the address when this one has gone.
        os.register_at_fork(after_in_child=listener.close)

    def serve(self) -> None:
        """Serves for as long as the process lives."""
        while True:
            self._listener.listen(60.0)

    def _on_hello(self, connection: Connection, hello: dict[str, Any]) -> None:
        if not is_hello(hello) or hello["process"] >= len(self._roster.names):
            self._listener.refuse(connection, "it is no task of this cluster")
        elif problem := check_attempt(self._roster, hello):
            self._listener.turn_away(connection, problem)
        elif hello.get("wants") == "service" and self._service_proxy is not None and self._service_proxy.admits(hello):
            connection.send({"go": True})
            self._listener.release(connection)
            self._service_proxy.take(connection.sock, hello)
        else:
            self._listener.turn_away(
                connection,
                f"Each task of a cluster runs once. The cluster runs already, with another process as "
                f"{self._roster.names[hello['process']]}. Stop the whole job before starting it again, or give this "
                "process a task of its own in TF_CONFIG.",
            )


def is_hello(value: Mapping[str, Any]) -> bool:
    """Returns whether a value has the fields of a hello: without a secret, every peer gets that far."""
    index, attempt = value.get("process"), value.get("generation")
    return (
        (type(index) is int and 0 < index < _MAX_INDEX)
        and (type(attempt) is int and attempt >= 0)
        and isinstance(value.get("task"), str)
        and isinstance(value.get("cluster"), dict)
        and isinstance(value.get("versions"), dict)
    )


def check_attempt(roster: Roster, hello: Mapping[str, Any]) -> str | None:
    """Returns why a task of another attempt at the job cannot take part, or `None` if it is of this one."""
    theirs, ours = hello["generation"], roster.attempt
    if theirs == ours:
        return None
    which = "an attempt that has been given up: end it" if theirs < ours else "a later attempt: end this one first"
    return (
        f"Only tasks of one attempt at a job (LOCKSTEP_GENERATION) take part in it together. {hello['task'][:100]} "
        f"belongs to attempt {theirs}, {roster.describe([0])} to attempt {ours}. The process is of {which}."
    )
