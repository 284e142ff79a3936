"""Keeps the members of a job with parameter servers on its chief: their connections, and their signs of life."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.job_state import JobState
from lockstep._engine.servers.messages import Superseded
from lockstep.errors import MissingTaskError

_log = logging.getLogger("lockstep")
# A wait looks again after so long, so that a limit that has passed is noticed.
_LOOK_SECONDS = 1.0


@dataclass
class _Peer:
    """Another task."""

    task: str
    incarnation: str
    seen: float
    close: Callable[[], None]
    connection: int
    is_connected: bool = True
    gone_at: float = 0.0


class Membership:
    """The tasks of a job beside the chief.

    Args:
        state: The job's state, whose lock guards this, too.
        chief: The name of the chief's task.
        servers: The names and addresses of the servers, for messages about those that are missing.
        limits: The limits of all waits.
    """

    def __init__(self, state: JobState, chief: str, servers: Mapping[str, str], limits: Limits) -> None:
        self._state = state
        self._chief = chief
        self._servers = dict(servers)
        self._limits = limits
        self._peers: dict[str, _Peer] = {}
        # Servers whose process has been started again, and that have no state.
        self._empty: set[str] = set()
        # Workers without a program, which compute functions of the chief's `ClusterCoordinator`.
        self._serving: set[str] = set()
        self._connections = 0

    # ---- Connections ----

    def arrive(self, task: str, incarnation: str) -> str | None:
        """Returns why a task cannot take part now, or `None`; `connect` then takes it in."""
        with self._state.changed:
            peer = self._peers.get(task)
            if task == self._chief or (peer is not None and peer.is_connected and peer.incarnation != incarnation):
                return (
                    f"Each task of a cluster runs once. Another process is {task}. Give this one an index of its own, "
                    "or stop the other one."
                )
            return None

    def connect(self, task: str, incarnation: str, close: Callable[[], None]) -> int:
        """Takes a task in; returns the number of its connection.

        Args:
            task: The task.
            incarnation: Its process: another one has nothing of what the former held.
            close: Closes its connection.
        """
        state = self._state
        with state.changed:
            peer = self._peers.get(task)
            is_new = peer is None or peer.incarnation != incarnation
            if peer is not None and is_new and task in self._servers:
                self._empty.add(task)
            if state.calls:
                state.current.book.gone(task)  # What was on the way to it has not arrived.
            self._connections += 1
            self._peers[task] = _Peer(task, incarnation, state.clock(), close, self._connections)
            # Leases go on once all servers are there, and none of them has lost its state.
            if state.calls and not self._empty and not self.missing_servers():
                state.current.book.is_paused = False
            state.notify()
            _log.info("%s is there", task)
            return self._connections

    def leave(self, task: str, connection: int) -> None:
        """Notes that a task's connection has ended; its leases go back at once."""
        state = self._state
        with state.changed:
            peer = self._peers.get(task)
            if peer is None or peer.connection != connection:
                return  # It has another one already.
            peer.is_connected, peer.gone_at = False, state.clock()
            if state.calls:
                book = state.current.book
                if count := book.gone(task):
                    _log.warning("%s has gone; its %d open batches are given to others.", task, count)
                if task in self._servers:
                    book.is_paused = True
            state.notify()

    def disconnect(self, task: str) -> None:
        """Closes the connection of a task that has given no sign of life."""
        with self._state.changed:
            peer = self._peers.get(task)
        if peer is not None and peer.is_connected:
            self.leave(task, peer.connection)
            peer.close()

    def beat(self, task: str) -> None:
        """Notes a sign of life."""
        peer = self._peers.get(task)
        if peer is not None:
            peer.seen = self._state.clock()

    def note_serving(self, task: str) -> None:
        """Notes that a worker has no program, and computes functions that the chief schedules."""
        self._serving.add(task)

    # ---- Servers ----

    def is_server(self, task: str) -> bool:
        """Returns whether a task is one of the servers."""
        return task in self._servers

    def missing_servers(self) -> list[str]:
        """Returns the servers that are not there."""
        return [t for t in self._servers if t not in self._peers or not self._peers[t].is_connected]

    def note_restored(self) -> None:
        """Notes that all servers have a state again."""
        self._empty.clear()

    def check_servers(self) -> None:
        """Raises what keeps the chief's call from going on.

        Raises:
            Superseded: If a server has lost its state, and all are there again.
            MissingTaskError: If a server has been away for longer than the limit.
        """
        if self._empty and not self.missing_servers():
            raise Superseded(f"{', '.join(sorted(self._empty))} has started again")
        now = self._state.clock()
        for task in self._servers:
            peer = self._peers.get(task)
            if peer is not None and not peer.is_connected and now - peer.gone_at > self._limits.join:
                raise MissingTaskError(self._missing_text([task], self._limits.join))

    def wait_for_servers(self, seconds: float) -> None:
        """Waits until all servers are there.

        Raises:
            MissingTaskError: If some are not, after `seconds`.
            PeerError: If a task has failed for good.
        """
        state = self._state
        end = state.clock() + seconds
        with state.changed:
            while missing := self.missing_servers():
                if state.error is not None:
                    raise state.error
                if state.clock() > end:
                    raise MissingTaskError(self._missing_text(missing, seconds))
                state.changed.wait(_LOOK_SECONDS)

    def _missing_text(self, missing: list[str], seconds: float) -> str:
        names = ", ".join(f"{task} ({self._servers[task]})" for task in missing)
        return (
            f"Every server must be there within {seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). Missing: {names}. Start the "
            "missing tasks, or check that they can reach the chief and have the same cluster in TF_CONFIG."
        )

    # ---- All tasks ----

    def peers(self) -> list[str]:
        """Returns the tasks that are there."""
        with self._state.changed:
            return [name for name, peer in self._peers.items() if peer.is_connected]

    def count_computing(self) -> int:
        """Returns how many tasks compute, the chief included."""
        return 1 + sum(p.is_connected for name, p in self._peers.items() if name not in self._servers)

    def workers(self, seconds: float) -> tuple[list[str], list[str]]:
        """Waits up to `seconds` for a worker; returns those that are there, without and with a program."""
        state = self._state
        end = state.clock() + seconds
        with state.changed:
            while True:
                here = [n for n, p in self._peers.items() if p.is_connected and n not in self._servers]
                left = end - state.clock()
                if here or left <= 0:
                    return [n for n in here if n in self._serving], [n for n in here if n not in self._serving]
                state.changed.wait(min(left, _LOOK_SECONDS))

    def wait_until_left(self, seconds: float) -> list[str]:
        """Waits until all other tasks that send heartbeats have ended; returns those that have not in `seconds`."""
        return self._wait_until_left(seconds, lambda task: True)

    def wait_until_workers_left(self, seconds: float) -> list[str]:
        """Waits as `wait_until_left`, and not for servers."""
        return self._wait_until_left(seconds, lambda task: task not in self._servers)

    def _wait_until_left(self, seconds: float, is_awaited: Callable[[str], bool]) -> list[str]:
        state = self._state
        end = state.clock() + seconds

        def is_here(peer: _Peer) -> bool:
            return peer.is_connected and state.clock() - peer.seen <= self._limits.silence

        with state.changed:
            while (here := [n for n, p in self._peers.items() if is_awaited(n) and is_here(p)]) and state.clock() < end:
                state.changed.wait(min(_LOOK_SECONDS, max(0.0, end - state.clock())))
            return here

    def look_for_silence(self) -> list[str]:
        """Returns the connected tasks without a sign of life for longer than the limit."""
        now = self._state.clock()
        with self._state.changed:
            return [
                name
                for name, peer in self._peers.items()
                if peer.is_connected and now - peer.seen > self._limits.silence
            ]
