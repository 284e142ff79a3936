"""Training on a worker: it goes through its own data, and computes the batches that it gets leases for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from lockstep._engine.input import random_state
from lockstep._engine.input.feed import Feed
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.job_state import Epoch
from lockstep._engine.servers.messages import Superseded
from lockstep._engine.servers.tickets import Lease
from lockstep._types import Batch
from lockstep.errors import MismatchError

# A question for a lease ends after so long, so that the end of the epoch is seen.
_LEASE_SECONDS = 5.0


class Client(Protocol):
    """Computes tickets of a call."""

    def begin_epoch(self, facts: Mapping[str, Any]) -> None:
        """Begins an epoch, of which the chief has told these facts."""
        ...

    def compute(self, lease: Lease, batch: Batch) -> None:
        """Computes a ticket's share; its push may wait for the next ticket, or for `flush`."""
        ...

    def flush(self) -> None:
        """Pushes what is computed, and reports it."""
        ...

    def drop(self) -> None:
        """Forgets what was computed for a state that servers have left."""
        ...


def work(call: Call, client: Client, make_feed: Callable[[], Feed]) -> None:
    """Computes leases until the chief has ended the call.

    Args:
        call: The call.
        client: Computes them.
        make_feed: Makes the feed of this task's data; again where servers have gone back to a cut.
    """
    feed: Feed | None = None
    generation = -1
    while (epoch := call.next_epoch()) is not None:
        if feed is None or epoch.generation != generation:
            # Servers count versions of another state from now on, and this task may not have asked them since.
            client.drop()
            feed, generation = make_feed(), epoch.generation
            feed.resume(epoch.extra["data"])
        client.begin_epoch(epoch.extra)
        random_state.restore(epoch.extra["random"])
        try:
            if not _work_epoch(call, client, feed, epoch):
                feed = None
        except Superseded:
            feed = None


def _work_epoch(call: Call, client: Client, feed: Feed, epoch: Epoch) -> bool:
    """Computes leases of one epoch; returns whether the feed stands at its end."""
    with feed.epoch(()) as placed:
        batches = _Batches(placed, epoch)
        while not call.epoch_is_over:
            lease = call.lease(0, batches.first)
            if lease is None:
                # Nothing to do at once: what is computed must not wait for the next lease.
                client.flush()
                lease = call.lease(_LEASE_SECONDS, batches.first)
            if lease is None:
                continue
            batch = batches.of(lease)
            if batch is None:
                call.give_back(lease)
                call.exhausted(batches.count)
                continue
            client.compute(lease, batch)
        client.flush()
        # With steps_per_epoch the next epoch goes on where this one ends.
        if feed.steps_per_epoch is not None:
            return batches.skip_to(epoch.first_batch + feed.steps_per_epoch)
    return True


class _Batches:
    """The batches of an epoch, of which a task can have the current one again, and later ones.

    Attributes:
        count: How many batches the epoch has, as far as they were read.
    """

    def __init__(self, placed: Iterator[Any], epoch: Epoch) -> None:
        self._placed = placed
        self._epoch = epoch
        self._current: Batch | None = None
        self.count = epoch.first_batch

    @property
    def first(self) -> int:
        """The ticket of the earliest batch that can be had."""
        current = self.count - (self._current is not None)
        return self._epoch.first_ticket + current - self._epoch.first_batch

    def of(self, lease: Lease) -> Batch | None:
        """Returns the batch of a lease; `None` if the data end before."""
        if lease.batch < self.count - 1:
            raise MismatchError(f"A worker cannot go back to batch {lease.batch}; it stands at {self.count}.")
        while self.count <= lease.batch:
            if not self._advance():
                return None
        return self._current

    def skip_to(self, count: int) -> bool:
        """Reads on until so many batches of the epoch are used; returns whether there are so many."""
        while self.count < count:
            if not self._advance():
                return False
        return True

    def _advance(self) -> bool:
        chunk = next(self._placed, None)
        if chunk is None:
            return False
        self._current, self.count = chunk.data, self.count + 1
        return True
