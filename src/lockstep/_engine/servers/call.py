"""One call of a job with parameter servers (`fit`, `evaluate`, ...), as each of its tasks sees it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lockstep._engine.servers.connection import unwrap_answer
from lockstep._engine.servers.job_state import Epoch, Report
from lockstep._engine.servers.message_channel import PendingRequest
from lockstep._engine.servers.messages import Array, Message, Superseded
from lockstep._engine.servers.place import Place
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply
from lockstep._engine.servers.server_group import spec_of_message
from lockstep._engine.servers.tickets import Lease
from lockstep.errors import MissingTaskError, PeerError

# Of one question to the coordinator, which answers within a second.
_POLL_SECONDS = 1.0
# A lease alone costs 0.4 ms of both tasks. Several together are for so long at most, as reports wait as long, too.
_LEASED_SECONDS = 0.06
_MOST_LEASES = 16


class _Pace:
    """Measures how many leases a task asks for at once: as many as it computes in a short time."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.count = 0

    def begin(self, count: int) -> None:
        """Notes that so many leases have come."""
        self._began, self.count = time.monotonic(), count

    def most(self, left: int = 0) -> int:
        """Returns for how many to ask, when all that came last but `left` are computed."""
        seconds = (time.monotonic() - self._began) / max(self.count - left, 1)
        return max(1, min(_MOST_LEASES, int(_LEASED_SECONDS / max(seconds, 1e-6)))) if self.count else 1


class Call:
    """A call that every task of the job makes.

    Attributes:
        number: Its number in the sequence.
        kind: Such as "fit".
        generation: The generation of the servers' state, as far as this task knows it.
        is_over: Whether the chief has ended the call.
        epoch_is_over: Whether the epoch that `next_epoch` returned last has ended, or was begun again.
    """

    def __init__(self, place: Place, number: int, kind: str, facts: Any) -> None:
        self.number, self.kind = number, kind
        self.generation = 0
        self.is_over = self.epoch_is_over = False
        self._place, self._facts = place, facts
        self._serial = -1
        self._reports: list[tuple[Lease, Report]] = []
        # Leases that came together, of which the first has been returned.
        self._leases: deque[Lease] = deque()
        self._pace = _Pace()
        # The request for the leases that follow these.
        self._ahead: PendingRequest | None = None
        self._lock = threading.Lock()
        self._job_id: str | None = None

    def opened(self, seconds: float | None = None) -> tuple[JobSpec, Any] | None:
        """Returns the spec with which the chief has opened the servers, and the facts that it gave with it.

        Returns:
            `None` if the call has ended without.

        Raises:
            MissingTaskError: If the chief has not within `seconds`, `LOCKSTEP_PEER_TIMEOUT` by default.
        """
        answer = self._poll(Message("opened"), seconds, "to open the servers")
        if answer.kind == "ended":
            return None
        spec = spec_of_message(answer)
        self._place.group.bind(spec)
        return spec, answer.facts.get("extra")

    def next_epoch(self, seconds: float | None = None) -> Epoch | None:
        """Returns the epoch after the one that was returned last, once the chief has begun it.

        After a rollback it is one that was begun before, from an earlier batch.

        Returns:
            `None` if the call is over.

        Raises:
            MissingTaskError: If the chief has not within `seconds`, `LOCKSTEP_PEER_TIMEOUT` by default.
        """
        answer = self._poll(Message("epoch", {"after": self._serial}), seconds, "to begin the next epoch")
        if answer.kind == "ended":
            self.is_over = self.epoch_is_over = True
            return None
        epoch = Epoch(*answer.facts["epoch"])
        self._leases.clear()
        self._ahead = None
        self._serial, self.generation, self.epoch_is_over = epoch.serial, epoch.generation, False
        return epoch

    def lease(self, seconds: float, first: int = 0, last: int | None = None) -> Lease | None:
        """Returns a share to compute.

        Args:
            seconds: To wait for one; 0 to return at once.
            first: The first ticket that this task can compute: its reader does not go back.
            last: The last ticket that it can compute.

        Returns:
            `None` if there is none within `seconds`, or if epoch or call have ended: see `epoch_is_over`, `is_over`.
        """
        if not self._leases:
            self._finish_ahead()
        end = time.monotonic() + seconds
        is_late = False
        while not self._leases:
            if is_late or self.is_over or self.epoch_is_over:
                return None
            left = max(0.0, end - time.monotonic())
            facts = {"first": first, "last": last, "seconds": min(left, _POLL_SECONDS), "most": self._pace.most()}
            self._ask_for_leases(facts)
            is_late = left <= 0
        lease = self._leases.popleft()
        if not self._leases and self._pace.count > 1:
            self._begin_ahead(lease.ticket + 1)
        return lease

    def done(self, lease: Lease, report: Mapping[str, Any]) -> None:
        """Notes that every server has the push of a lease.

        A worker's note travels with its next `lease`, or at the latest after a second.

        Args:
            lease: The lease.
            report: What the chief's `wait` returns for it: metrics and logs by name.
        """
        values = {name: np.asarray(value) for name, value in report.items()}
        with self._lock:
            self._reports.append((lease, values))

    def give_back(self, lease: Lease) -> None:
        """Returns a lease that this task cannot compute."""
        facts = {"ticket": lease.ticket, "share": lease.share}
        if lease.generation == self.generation:
            self._ask(Message("give back", facts))

    def exhausted(self, batches: int) -> None:
        """Notes that the data of the epoch that `next_epoch` returned last end after so many batches.

        Raises:
            MismatchError: If another task has another number.
        """
        self._ask(Message("exhausted", {"serial": self._serial, "batches": batches}))

    def flush(self) -> None:
        """Sends what `done` has noted."""
        if self._reports:
            self._ask_for_leases({"wants": False, "seconds": 0.0})

    def begin_push(self, push: Push) -> None:
        """Sends a push to all servers, which the next `exchange` is given: they apply it meanwhile."""
        self._place.group.begin_push(push)

    def drop_push(self) -> None:
        """Forgets a push that has begun."""
        self._place.group.drop_push()

    def exchange(self, push: Push | None, pull: Pull | None) -> Reply:
        """Pushes to all servers and pulls from all, in one round trip.

        Returns:
            The answer; of status "late" where others have computed the share: `give_back` the lease.

        Raises:
            Superseded: If the servers have gone back to a cut, or begin anew.
            MissingTaskError: If a server cannot be reached.
            PeerError: If this task alone cannot reach a server.
        """
        return self._place.group.exchange(push, pull, self._place.limits.join + self._place.limits.peer)

    def read(self, name: str) -> Array:
        """Returns a whole variable, or a slot of it by "name/slot"."""
        return self._place.group.read(name)

    def read_rows(self, name: str, start: int, stop: int) -> Array:
        """Returns rows of a variable."""
        return self._place.group.read_rows(name, start, stop)

    def result(self) -> tuple[Any, Mapping[str, Array]]:
        """Returns what the chief has ended the call with, once it has: JSON, and arrays.

        Raises:
            PeerError: If the chief's program has ended before.
        """
        while True:
            answer = self._ask(Message("result", {"seconds": _POLL_SECONDS}))
            self._place.check()
            if answer.kind == "result":
                self.is_over = self.epoch_is_over = True
                return answer.facts.get("result"), answer.arrays
            if answer.kind == "ended":
                raise PeerError(f"{self._place.chief} has ended its program before its {self.kind} had ended.")

    def begin(self) -> None:
        """Begins the call together with the other tasks.

        Raises:
            MismatchError: If the chief's call of this number is another one.
            MissingTaskError: If the chief has not begun it within the limit.
        """
        facts = {"kind": self.kind, "facts": self._facts}
        answer = self._poll(Message("begin", facts), None, f"to begin its {self.kind}")
        if answer.kind == "ended":
            raise PeerError(f"{self._place.chief} has ended its program, and has made no call {self.number}.")

    def _ask_for_leases(self, facts: Mapping[str, Any]) -> None:
        """Asks for leases, and tells what is done."""
        self._take_leases(lambda: self._ask(self._lease_request(facts)))

    def _begin_ahead(self, first: int) -> None:
        """Asks for the leases that follow while the last one is computed: the chief's answer takes 1.6 ms."""
        facts = {"first": first, "last": None, "seconds": 0.0, "most": self._pace.most(left=1)}
        self._ahead = self._place.channel.begin(self._of_call(self._lease_request(facts)))

    def _finish_ahead(self) -> None:
        """Takes the leases that were asked for ahead of need, if some were."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._take_leases(lambda: self._note_answer(self._place.channel.finish(ahead), "lease"))

    def _lease_request(self, facts: Mapping[str, Any]) -> Message:
        with self._lock:
            done, self._reports = self._reports, []
        listing = [[le.generation, le.ticket, le.share, list(report)] for le, report in done]
        arrays = {f"{n}/{name}": value for n, (_, report) in enumerate(done) for name, value in report.items()}
        return Message("lease", {**facts, "serial": self._serial, "done": listing}, arrays)

    def _take_leases(self, ask: Callable[[], Message]) -> None:
        """Takes the leases of an answer, and the state of call and epoch."""
        try:
            answer = ask()
        except Superseded:
            return  # The chief has started again: the epoch is over.
        self.is_over = bool(answer.facts.get("over"))
        serial, is_over = answer.facts.get("serial", -1), answer.facts.get("epoch over", False)
        self.epoch_is_over = self.is_over or is_over or serial != self._serial
        self.generation = answer.facts["generation"]
        if answer.kind == "lease" and not self.epoch_is_over:
            self._leases.extend(Lease(*values) for values in answer.facts["leases"])
            self._pace.begin(len(self._leases))

    def _poll(self, message: Message, seconds: float | None, what: str) -> Message:
        """Asks until the answer is another than "wait"."""
        limit = self._place.limits.peer if seconds is None else seconds
        end = time.monotonic() + limit
        while True:
            left = end - time.monotonic()
            facts = {**message.facts, "seconds": max(0.0, min(left, _POLL_SECONDS))}
            try:
                answer = self._ask(Message(message.kind, facts, message.arrays))
            except Superseded:
                continue
            self._place.check()
            if answer.kind != "wait":
                return answer
            if left <= 0:
                raise MissingTaskError(
                    f"The tasks of a job make the same calls. {self._place.task} waits for {self._place.chief} {what}; "
                    f"it has not within {limit:g} s (LOCKSTEP_PEER_TIMEOUT). Look at what it does."
                )

    def _ask(self, message: Message) -> Message:
        """Asks the coordinator about this call; `Superseded` if the chief was started again and has come here again."""
        return self._note_answer(self._place.channel.ask(self._of_call(message)), message.kind)

    def _of_call(self, message: Message) -> Message:
        """Returns a message that names this call."""
        return Message(message.kind, {**message.facts, "call": self.number}, message.arrays)

    def _note_answer(self, answer: Message, kind: str) -> Message:
        """Returns an answer to a message of some kind; raises the error that it holds, and `Superseded` as `_ask`."""
        answer = unwrap_answer(answer, self._place.chief)
        known, self._job_id = self._job_id, answer.facts.get("job", self._job_id)
        if known is not None and known != self._job_id and kind != "begin":
            # The chief was started again, and repeats its program: this task waits until it has come here.
            self._serial = -1
            self.epoch_is_over = True
            self._reports.clear()
            self._leases.clear()
            self._ahead = None
            if kind != "result":
                self._begin_again()
                raise Superseded("the chief has started again")
        return answer

    def _begin_again(self) -> None:
        facts = {"kind": self.kind, "facts": self._facts, "seconds": _POLL_SECONDS}
        while self._ask(Message("begin", facts)).kind == "wait":
            self._place.check()
