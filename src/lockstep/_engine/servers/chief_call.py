"""Makes a call of a job with parameter servers on its chief, for all tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lockstep._engine.servers import cuts, table_files
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.coordinator import Coordinator
from lockstep._engine.servers.job_state import Epoch, Report
from lockstep._engine.servers.messages import Array, Message, Superseded
from lockstep._engine.servers.place import Place
from lockstep._engine.servers.requests import JobSpec
from lockstep._engine.servers.server_group import spec_to_message
from lockstep._engine.servers.tickets import Lease
from lockstep.errors import MissingTaskError, PeerError

# Between two looks for a lease.
_POLL_SECONDS = 0.02


class ChiefCall(Call):
    """A call on the chief, which begins and ends it for all tasks.

    Args:
        place: The chief.
        number: The call's number in the sequence.
        kind: Such as "fit".
        facts: What is equal on all tasks; JSON.
        coordinator: What all tasks share.
    """

    def __init__(self, place: Place, number: int, kind: str, facts: Any, coordinator: Coordinator) -> None:
        super().__init__(place, number, kind, facts)
        self._coordinator = coordinator
        self._cut: cuts.Cut | None = None

    def begin(self) -> None:
        """Begins the call; the other tasks follow."""
        self._coordinator.begin(self.kind, self._facts)
        self.generation = self._coordinator.state.generation

    def lease(self, seconds: float, first: int = 0, last: int | None = None) -> Lease | None:
        """Returns a share to compute; see `Call.lease`."""
        end = time.monotonic() + seconds
        while not self.is_over and not self.epoch_is_over:
            lease = self._coordinator.try_lease(self._place.task, first, last)
            if lease is not None or time.monotonic() >= end:
                return lease
            time.sleep(_POLL_SECONDS)
        return None

    def done(self, lease: Lease, report: Mapping[str, Any]) -> None:
        """Notes that every server has the push of a lease."""
        values = {name: np.asarray(value) for name, value in report.items()}
        self._coordinator.done(self._place.task, lease, values)

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
        self._coordinator.members.wait_for_servers(self._place.limits.join)
        generation = self._next_generation()
        reports = self._place.group.open(spec, generation, initial, is_new)
        version = max(int(report.get("version", 0)) for report in reports)
        facts, arrays = spec_to_message(spec)
        shares = spec.shares if spec.mode == "sync" else 1
        staleness = 0 if spec.mode == "sync" else staleness
        self.generation = generation
        self._coordinator.roll_back(version, generation)
        opened = Message("opened", {**facts, "extra": extra}, arrays)
        self._coordinator.open(opened, shares, staleness, version, spec.closes)
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
            peers = ", ".join(self._coordinator.members.peers()) or "none"
            raise MissingTaskError(
                f"Every batch must be applied within {self._place.limits.peer:g} s (LOCKSTEP_PEER_TIMEOUT). "
                f"Batch {ticket} is not. Tasks that are there: {peers}."
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
            self._coordinator.members.wait_for_servers(self._place.limits.join)
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

    def _next_generation(self) -> int:
        known = [int(report.get("generation", -1)) for report in self._place.group.ask_all(Message("report"))]
        return max([self._coordinator.state.generation, *known]) + 1
