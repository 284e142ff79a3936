"""A task's round trips for tickets: in asynchronous training the push of one goes ahead of the pull of the next."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockstep._engine.servers.call import Call
from lockstep._engine.servers.requests import Pull, Push, Reply
from lockstep._engine.servers.tickets import Lease
from lockstep._types import Array

Report = Mapping[str, np.ndarray]
# Names in a report: how many updates the ticket has missed, and a checksum of its batch.
STALENESS, CHECKSUM = "staleness", "checksum"


class TicketExchange:
    """Pulls what tickets need, and pushes what they came to.

    Args:
        call: The call.
        is_synchronous: Whether a pull waits for the version that its lease names, and a push for no other ticket.

    Attributes:
        dense: The newest values of variables that travel whole, by name.
        version: The servers' version of them; -1 for none.
    """

    def __init__(self, call: Call, is_synchronous: bool) -> None:
        self._call = call
        self._is_synchronous = is_synchronous
        self.dense: dict[str, Array] = {}
        self.version = -1
        # What is computed and not pushed yet.
        self._pending: tuple[Lease, Push, Report] | None = None

    def pull(self, lease: Lease, rows: Mapping[str, Array]) -> Reply | None:
        """Pulls what a ticket needs, and pushes the one before.

        Returns:
            `None` if others have computed it meanwhile: the lease is given back.

        Raises:
            Superseded: If the servers have gone back to a cut: the lease is void.
        """
        at_version = lease.version if self._is_synchronous else None
        pull = Pull(lease.generation, rows, self.version, at_version)
        pending = self._pending
        reply = self._call.exchange(None if pending is None else pending[1], pull)
        if pending is not None:
            self._finish(pending[0], pending[2], reply)
        if reply.status == "late":
            self._call.give_back(lease)
            return None
        if reply.dense is not None:
            self.dense.update(reply.dense)
        self.version = reply.version
        return reply

    def pull_sums(self, lease: Lease, rows: Mapping[str, Array]) -> Reply | None:
        """Pulls the sum of what the other shares of a ticket have pushed, for the share that closes it.

        Returns:
            `None` if others have computed that meanwhile: the lease is given back.

        Raises:
            Superseded: If the servers have gone back to a cut: the lease is void.
        """
        reply = self._call.exchange(None, Pull(lease.generation, rows, -1, lease.version, sums=True))
        if reply.status == "late":
            self._call.give_back(lease)
            return None
        return reply

    def push(self, lease: Lease, push: Push, report: Report) -> None:
        """Pushes what a ticket came to; `flush` or the next pull, or in synchronous training this, has the answer."""
        self._pending = lease, push, report
        if self._is_synchronous:
            self.flush()
        else:
            self._call.begin_push(push)

    def flush(self) -> None:
        """Pushes what is computed, and reports it."""
        if self._pending is not None:
            lease, push, report = self._pending
            self._finish(lease, report, self._call.exchange(push, None))

    def drop(self) -> None:
        """Forgets what was computed for a state that servers have left."""
        self._pending, self.version = None, -1
        self._call.drop_push()

    def _finish(self, lease: Lease, report: Report, reply: Reply) -> None:
        self._pending = None
        self._call.done(lease, {**report, STALENESS: np.asarray(reply.staleness)})
