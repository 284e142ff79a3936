"""The tickets of an epoch, as the chief's loop goes through them: released, computed here or elsewhere, waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep._engine.input import samples
from lockstep._engine.input.samples import Sample
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.job_state import Report
from lockstep._engine.servers.ticket_exchange import CHECKSUM
from lockstep._engine.servers.tickets import Lease
from lockstep._engine.servers.worker import Client
from lockstep._types import Batch
from lockstep.errors import MismatchError

# A ticket, its batch, and what tasks have reported of it.
Applied = tuple[int, Batch, Sequence[Report]]
# How long the chief waits for a ticket of another task before it looks whether that came back.
_POLL_SECONDS = 0.05


class ChiefTickets:
    """The chief's way through the tickets of one epoch after another.

    Args:
        call: The call.
        client: Computes tickets on the chief.
        holds_later: Whether the chief leases a later ticket while others compute the one that it waits for.
        ahead: How many tickets are released at most before the first of them is applied.

    Attributes:
        next: The first ticket that is not applied, as far as the loop has gone: how many updates there are.
        released: The first ticket that nobody may lease yet.
    """

    def __init__(self, call: ChiefCall, client: Client, holds_later: bool, ahead: int) -> None:
        self._call = call
        self._client = client
        self._holds_later = holds_later
        self._ahead = ahead
        self._end: int | None = None
        self._held: Lease | None = None
        # Batches of the tickets from `next` on, whose updates are not applied yet, as far as the chief knows.
        self._open: deque[Batch] = deque()
        self.first_batch = self.first = self.next = self.released = 0

    def begin_epoch(self, epoch: int, first_batch: int, batches: int | None, extra: Any) -> None:
        """Begins an epoch, for all tasks.

        Args:
            epoch: Its number.
            first_batch: Its first batch that is trained on.
            batches: How many it has, the ones before the first included; `None` until the data end.
            extra: Facts for workers; JSON.
        """
        begun = self._call.begin_epoch(epoch, first_batch, batches, extra)
        self.first = self.next = self.released = begun.first_ticket
        self.first_batch = first_batch
        self._end = None if batches is None else begun.first_ticket + batches - first_batch
        self._held = None
        self._open.clear()

    @property
    def steps(self) -> int:
        """The number of steps of this epoch so far, of which the last ones may not be applied yet."""
        return self.next + len(self._open) - self.first

    def check_data(self, ticket: int, batch: Batch, report: Report) -> None:
        """Compares the batch that another task has computed with the chief's, if the report has a checksum.

        Raises:
            MismatchError: If they differ.
        """
        number = self.first_batch + ticket - self.first
        if CHECKSUM in report and int(report[CHECKSUM]) != Sample(batch, number).checksum:
            raise MismatchError(
                f"Every task must read the same data. In batch {number} of the epoch, a worker has read other values "
                f"than the chief. {samples.ADVICE} {samples.VARIABLE}=0 leaves values uncompared."
            )

    def step(self, batch: Batch, horizon: int, hyper: Mapping[str, float]) -> Sequence[Report]:
        """Waits until the next batch's update is applied, whoever has computed it; returns the tasks' reports.

        Args:
            batch: The batch, which the chief computes if nobody else does.
            horizon: How many tickets may be released, from this one on: at least 1.
            hyper: Numbers of the update, for tickets that are not released yet.
        """
        ((_, _, reports),) = self.submit(batch, horizon, hyper, 0)
        return reports

    def submit(self, batch: Batch, horizon: int, hyper: Mapping[str, float], behind: int) -> list[Applied]:
        """Takes the next batch, and returns those whose updates are applied by now, in order.

        Args:
            batch: The batch, which the chief computes if nobody else does.
            horizon: How many tickets may be released, from this one on: at least 1.
            hyper: Numbers of the update, for tickets that are not released yet.
            behind: How many batches may be open when this returns. 0 waits for all: then, while another task computes
                one, the chief can only hold a lease of a batch that it has not read yet.
        """
        ticket = self.next + len(self._open)
        until = ticket + max(1, min(horizon, self._ahead))
        self.released = max(self.released, until if self._end is None else min(until, self._end))
        self._call.release(self.released, dict(hyper))
        self._open.append(batch)
        return self.settle(behind)

    def settle(self, behind: int = 0) -> list[Applied]:
        """Computes and waits until at most so many batches are open; returns those that were applied, in order."""
        applied: list[Applied] = []
        wait = 0.0
        while self._open:
            reports = self._call.wait(self.next, wait)
            if reports is not None:
                applied.append((self.next, self._open.popleft(), reports))
                self.next += 1
                wait = 0.0
            elif len(self._open) <= behind:
                break
            elif (lease := self._lease()) is not None:
                self._client.compute(lease, self._open[lease.ticket - self.next])
                wait = 0.0
            else:
                # What is computed must not wait for the next lease.
                self._client.flush()
                wait = _POLL_SECONDS
        if not self._open:
            self._client.flush()
        return applied

    def _lease(self) -> Lease | None:
        """Returns a lease of one of the open batches."""
        last = self.next + len(self._open) - 1
        held = self._held
        if held is not None and held.ticket <= last:
            self._held = None
            if held.ticket >= self.next:
                return held
            held = None  # Another task has computed it meanwhile, for it was slow to come.
        lease = self._call.lease(0, self.next, last)
        if lease is None and held is None and self._holds_later:
            # Others compute all of these; the chief computes a later one, when its loop comes there.
            self._held = self._call.lease(0, last + 1)
        return lease
