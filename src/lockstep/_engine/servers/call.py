"""One call of a job with parameter servers (`fit`, `evaluate`, ...), as each of its tasks sees it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers import cuts, table_files
from lockstep._engine.servers.connection import checked
from lockstep._engine.servers.coordinator import Coordinator, Epoch, Report
from lockstep._engine.servers.messages import Array, Message, Superseded
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply
from lockstep._engine.servers.server_group import ServerGroup, spec_of_message, spec_to_message
from lockstep._engine.servers.tickets import Lease
from lockstep.errors import MissingTaskError, PeerError

# Of one question to the coordinator, which answers within a second.
_POLL_SECONDS = 1.0
_CHIEF_POLL_SECONDS = 0.02
# A lease alone costs 0.4 ms of both tasks. Several together are for so long at most, as reports wait as long, too.
_LEASED_SECONDS = 0.06
_MOST_LEASES = 8


class Channel(Protocol):
    """Way to the coordinator."""

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        """Returns the answer to a message."""
        ...


@dataclass(frozen=True)
class Place:
    """The task that makes a call.

    Attributes:
        task: Its name.
        chief: The chief's name.
        channel: Its way to the coordinator.
        group: Its ways to the servers.
        limits: The limits of its waits.
        coordinator: The coordinator, on the chief.
        check: Raises what ends this task from elsewhere, such as a server's own error; called in each wait.
    """

    task: str
    chief: str
    channel: Channel
    group: ServerGroup
    limits: Limits
    coordinator: Coordinator | None
    check: Callable[[], None]


class _Pace:
    """How many leases a task asks for at once: as many as it computes in a short time."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._count = 0

    def begin(self, count: int) -> None:
        """Notes that so many leases have come."""
        self._began, self._count = time.monotonic(), count

    def most(self) -> int:
        """Returns for how many to ask, when all that came last are computed."""
        seconds = (time.monotonic() - self._began) / max(self._count, 1)
        return max(1, min(_MOST_LEASES, int(_LEASED_SECONDS / max(seconds, 1e-6)))) if self._count else 1


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
        self._lock = threading.Lock()
        self._job_id: str | None = None
        self._cut: cuts.Cut | None = None

    # Of workers and the chief ----------------------------------------------------------------------------------------

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
        if self._place.coordinator is not None:
            return self._lease_of_chief(self._place.coordinator, seconds, first, last)
        if self._leases:
            return self._leases.popleft()
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            facts = {"serial": self._serial, "first": first, "last": last, "seconds": min(left, _POLL_SECONDS)}
            answer = self._ask_for_lease({**facts, "most": self._pace.most()})
            if answer is None or self.is_over or self.epoch_is_over:
                return None
            if answer.kind == "lease":
                self._leases.extend(Lease(*values) for values in answer.facts["leases"])
                self._pace.begin(len(self._leases))
                return self._leases.popleft()
            if left <= 0:
                return None

    def done(self, lease: Lease, report: Mapping[str, Any]) -> None:
        """Notes that every server has the push of a lease.

        A worker's note travels with its next `lease`, or at the latest after a second.

        Args:
            lease: The lease.
            report: What the chief's `wait` returns for it: metrics and logs by name.
        """
        values = {name: np.asarray(value) for name, value in report.items()}
        if self._place.coordinator is not None:
            self._place.coordinator.done(self._place.task, lease, values)
            return
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
            self._ask_for_lease({"serial": self._serial, "wants": False, "seconds": 0.0})

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

    # Of the chief ----------------------------------------------------------------------------------------------------

    @property
    def _coordinator(self) -> Coordinator:
        assert self._place.coordinator is not None, "only the chief does this"
        return self._place.coordinator

    def open(
        self,
        spec: JobSpec,
        initial: Mapping[str, Array],
        extra: Any = None,
        staleness: int | None = None,
        is_new: bool = False,
    ) -> list[dict[str, Any]]:
        """Opens the servers with a layout and values, and tells all tasks.

        Args:
            spec: The job's spec. If it is that with which they are open, they keep what `initial` does not name.
            initial: Values of variables, and by "name/slot" of slots.
            extra: Facts for all tasks; JSON.
            staleness: How many updates a gradient may miss; `None` for no bound. 0 in synchronous training.
            is_new: Whether they begin anew whatever they hold, with ticket 0.

        Returns:
            The servers' reports.
        """
        self._coordinator.wait_for_servers(self._place.limits.join)
        generation = self._next_generation()
        reports = self._place.group.open(spec, generation, initial, is_new)
        version = max(int(report.get("version", 0)) for report in reports)
        facts, arrays = spec_to_message(spec)
        shares = spec.replicas if spec.mode == "sync" else 1
        staleness = 0 if spec.mode == "sync" else staleness
        self.generation = generation
        self._coordinator.roll_back(version, generation)
        self._coordinator.open(Message("opened", {**facts, "extra": extra}, arrays), shares, staleness, version)
        return reports

    def begin_epoch(self, epoch: int, first_batch: int = 0, batches: int | None = None, extra: Any = None) -> Epoch:
        """Begins an epoch for all tasks; `release` then lets them compute."""
        begun = self._coordinator.begin_epoch(epoch, first_batch, batches, extra)
        self._serial, self.epoch_is_over = begun.serial, False
        return begun

    def end_epoch(self, batches: int) -> None:
        """Ends the epoch after so many batches."""
        self._coordinator.end_epoch(batches)
        self.epoch_is_over = True

    def release(self, until_ticket: int, hyper: Mapping[str, float] | None = None) -> None:
        """Allows tickets below `until_ticket` to be leased, with these scalars for those not released yet."""
        self._coordinator.release(until_ticket, dict(hyper or {}))

    def wait(self, ticket: int, seconds: float | None = None) -> list[Report] | None:
        """Waits until a ticket is applied; returns what its shares' tasks have reported, in order.

        Returns:
            `None` if it is not, after `seconds`; `LOCKSTEP_PEER_TIMEOUT` and an error by default.

        Raises:
            Superseded: If a server has lost its state: go on with `recover`.
            PeerError: If a task has failed for good.
            MissingTaskError: If a server stays away; or by default after the limit.
        """
        reports = self._coordinator.wait(ticket, self._place.limits.peer if seconds is None else seconds)
        if reports is None and seconds is None:
            raise MissingTaskError(
                f"Every batch must be applied within {self._place.limits.peer:g} s (LOCKSTEP_PEER_TIMEOUT). "
                f"Batch {ticket} is not. Tasks that are there: {', '.join(self._coordinator.peers()) or 'none'}."
            )
        return reports

    def is_quiet(self, step: int) -> bool:
        """Returns whether exactly the tickets below `step` are applied, and none is leased."""
        return self._coordinator.is_quiet(step)

    def cut(self, directory: str, step: int, extra: Any = None) -> cuts.Cut:
        """Writes the state of all servers before ticket `step` into `directory`, whole or not at all.

        Args:
            directory: A directory that all servers reach, made for this cut.
            step: The ticket; none is leased at or above it, and all below it are applied.
            extra: Facts that `recover` returns; JSON.

        Raises:
            CheckpointError: If a server cannot write.
            Superseded: If a server has lost its state.
        """
        self._cut = cuts.write(self._place.group, directory, step, extra)
        return self._cut

    def restore(self, directory: str) -> cuts.Cut:
        """Sets all servers back to a cut, and begins a new generation from its ticket."""
        cut = cuts.read(directory)
        generation = self._next_generation()
        cuts.restore(self._place.group, cut, generation)
        self.generation = generation
        self._coordinator.roll_back(cut.step, generation)
        self._cut = cut
        return cut

    def recover(self) -> cuts.Cut:
        """Waits until all servers are there again, and sets all back to the last cut of this call.

        Raises:
            MissingTaskError: If one stays away.
            PeerError: If there is no cut.
        """
        while True:
            self._coordinator.wait_for_servers(self._place.limits.join)
            if self._cut is None:
                raise PeerError(
                    "A server has lost its state, and there is no cut to go back to. Pass "
                    "keras.callbacks.BackupAndRestore (or a model_dir) with a directory that all tasks reach."
                )
            try:
                spec = self._place.group.spec
                assert spec is not None
                self._place.group.open(spec, self._next_generation(), {})
                return self.restore(self._cut.directory)
            except Superseded:
                continue  # Another one has gone meanwhile.

    def save_tables(self, directory: str, step: int, arrays: table_files.TableArrays) -> list[table_files.FileInfo]:
        """Has all servers write their rows of tables into a directory that the chief reaches, too.

        Raises:
            CheckpointError: If a server cannot write, or has written elsewhere.
            Superseded: If a server has lost its state.
        """
        return table_files.save(self._place.group, directory, step, arrays)

    def load_tables(self, directory: str, files: Sequence[str], arrays: table_files.TableArrays) -> None:
        """Has all servers take their rows of tables from files that `save_tables` has written, with any servers."""
        table_files.restore(self._place.group, directory, files, arrays)

    def assign(self, name: str, value: Array) -> None:
        """Sets a whole variable, or a slot of it by "name/slot", on the servers."""
        self._place.group.assign(name, value)

    def end(self, result: Any = None, arrays: Mapping[str, Array] | None = None) -> None:
        """Ends the call with the result that all other tasks return."""
        self._coordinator.end(Message("result", {"result": result}, dict(arrays or {})))
        self.is_over = self.epoch_is_over = True

    # ------------------------------------------------------------------------------------------------------------------

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

    def _next_generation(self) -> int:
        known = [int(report.get("generation", -1)) for report in self._place.group.ask_all(Message("report"))]
        return max([self._coordinator.generation, *known]) + 1

    def _lease_of_chief(self, coordinator: Coordinator, seconds: float, first: int, last: int | None) -> Lease | None:
        end = time.monotonic() + seconds
        while not self.is_over and not self.epoch_is_over:
            lease = coordinator.try_lease(self._place.task, first, last)
            if lease is not None or time.monotonic() >= end:
                return lease
            time.sleep(_CHIEF_POLL_SECONDS)
        return None

    def _ask_for_lease(self, facts: dict[str, Any]) -> Message | None:
        """Asks for a lease, and tells what is done; `None` if the chief has started again."""
        with self._lock:
            done, self._reports = self._reports, []
        listing = [[le.generation, le.ticket, le.share, list(report)] for le, report in done]
        arrays = {f"{n}/{name}": value for n, (_, report) in enumerate(done) for name, value in report.items()}
        try:
            answer = self._ask(Message("lease", {**facts, "done": listing}, arrays))
        except Superseded:
            return None
        self.is_over = bool(answer.facts.get("over"))
        serial, is_over = answer.facts.get("serial", -1), answer.facts.get("epoch over", False)
        self.epoch_is_over = self.is_over or is_over or serial != self._serial
        self.generation = answer.facts["generation"]
        return answer

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
        request = Message(message.kind, {**message.facts, "call": self.number}, message.arrays)
        answer = checked(self._place.channel.ask(request), self._place.chief)
        known, self._job_id = self._job_id, answer.facts.get("job", self._job_id)
        if known is not None and known != self._job_id and message.kind != "begin":
            # The chief was started again, and repeats its program: this task waits until it has come here.
            self._serial = -1
            self.epoch_is_over = True
            self._reports.clear()
            self._leases.clear()
            if message.kind != "result":
                self._begin_again()
                raise Superseded("the chief has started again")
        return answer

    def _begin_again(self) -> None:
        facts = {"kind": self.kind, "facts": self._facts, "seconds": _POLL_SECONDS}
        while self._ask(Message("begin", facts)).kind == "wait":
            self._place.check()
