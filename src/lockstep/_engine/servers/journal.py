"""The journal of a server: which tickets it applied, in which order, each computed at which version.

With the journals of all servers an asynchronous training is repeated to the bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from lockstep._types import Array
from lockstep.errors import ArgumentError


class Journal:
    """The order in which a server applies tickets, from the version `first` on; 16 bytes a ticket.

    Args:
        first: The version before the first entry.
        entries: Of a journal that goes on, shape (n, 2).
    """

    def __init__(self, first: int = 0, entries: Array | None = None) -> None:
        self.first = first
        self._entries = array("q", [] if entries is None else np.asarray(entries, np.int64).ravel().tolist())

    def append(self, ticket: int, based_on: int) -> None:
        """Notes that a ticket was applied, whose values were pulled at version `based_on`."""
        self._entries.extend((ticket, based_on))

    def __len__(self) -> int:
        return len(self._entries) // 2

    @property
    def entries(self) -> Array:
        """The tickets and the versions that they are based on, shape (n, 2), int64."""
        return np.array(self._entries, np.int64).reshape(-1, 2)


def replay(journals: Sequence[Journal], pull: Callable[[int, int], None], push: Callable[[int, int], None]) -> None:
    """Repeats a training in the order of its journals.

    Args:
        journals: Of all servers, in their order.
        pull: Called as `pull(ticket, server)` when that server is at the version that the ticket was computed at.
        push: Called as `push(ticket, server)` when it is that ticket's turn there, after its pulls from all servers.

    Raises:
        ArgumentError: If the journals are not of one training.
    """
    orders = [journal.entries for journal in journals]
    readers: list[dict[int, list[int]]] = []
    for journal, order in zip(journals, orders, strict=True):
        by_version: dict[int, list[int]] = {}
        for ticket, based_on in order.tolist():
            by_version.setdefault(based_on - journal.first, []).append(ticket)
        readers.append(by_version)
    pulled: dict[int, int] = {}
    done = [0] * len(journals)
    for server in range(len(journals)):
        _pull_all(readers[server].get(0, []), server, pull, pulled)
    while any(n < len(order) for n, order in zip(done, orders, strict=True)):
        ready = [
            s for s, n in enumerate(done) if n < len(orders[s]) and pulled.get(int(orders[s][n, 0]), 0) == len(journals)
        ]
        if not ready:
            waiting = [int(orders[s][n, 0]) for s, n in enumerate(done) if n < len(orders[s])]
            raise ArgumentError(
                f"Journals of one training can be repeated together. Received: journals whose next tickets, {waiting}, "
                "wait for each other. Give the journals of all servers of one job, from the same cut."
            )
        for server in ready:
            push(int(orders[server][done[server], 0]), server)
            done[server] += 1
            _pull_all(readers[server].get(done[server], []), server, pull, pulled)


def _pull_all(tickets: Sequence[int], server: int, pull: Callable[[int, int], None], pulled: dict[int, int]) -> None:
    for ticket in tickets:
        pull(ticket, server)
        pulled[ticket] = pulled.get(ticket, 0) + 1
