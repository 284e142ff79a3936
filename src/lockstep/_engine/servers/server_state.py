"""The state of one parameter server: which tickets its variables have. No sockets; safe for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep._engine.servers import cut as cuts
from lockstep._engine.servers.journal import Journal
from lockstep._engine.servers.layout import Layout
from lockstep._engine.servers.requests import CutInfo, JobSpec, Pull, Push, Reply
from lockstep._engine.servers.server_variables import ServerVariables
from lockstep._engine.servers.shares import Sum, sum_of
from lockstep._engine.servers.table_files import FileInfo
from lockstep._types import JSON, Array
from lockstep.errors import MismatchError, PeerError

# Shares of later rounds are kept: workers are at most one round ahead of the slowest server.
_ROUNDS_AHEAD = 2
Rows = dict[str, Array]


def _nothing() -> None:
    """Notes nothing: nobody waits."""


class ServerState:
    """Holds the state of one server, and changes it.

    Args:
        server: Its number.
        note_progress: Called after each piece of a file that is written or read.
    """

    def __init__(self, server: int, note_progress: Callable[[], None] = _nothing) -> None:
        self.server = server
        self._note_progress = note_progress
        self._changed = threading.Condition()
        self._variables: ServerVariables | None = None
        self._digest = ""
        self._generation = -1
        self._failure: BaseException | None = None

    def open(self, spec: JobSpec, generation: int, initial: Mapping[str, Array], is_new: bool = False) -> None:
        """Makes the server ready for a call's tickets.

        With a spec that is equal to the last one, all state stays but what `initial` names; another spec begins anew.

        Args:
            spec: The job's facts.
            generation: Of the job.
            initial: By variable, or "variable/slot": the server's rows, one range after the other. "iterations" is the
                optimizer's count of steps.
            is_new: Whether the state begins anew with an equal spec, too.

        Raises:
            UnsupportedError: If a variable that is updated whole is divided.
            MismatchError: If an initial value is of another shape.
        """
        with self._changed:
            digest = spec.digest()
            iterations = int(initial["iterations"]) if "iterations" in initial else None
            variables = self._variables
            if is_new or variables is None or digest != self._digest or self._failure is not None:
                variables = self._begin(spec, digest, iterations or 0)
            elif iterations is not None and iterations != variables.iterations:
                variables.restart_steps(iterations)
            self._generation = generation
            self._shares = {}
            self._pulled, self._before, self._closed = {}, None, []
            for name, value in initial.items():
                if name != "iterations":
                    variables.assign_own(name, np.asarray(value))
            self._changed.notify_all()

    def _begin(self, spec: JobSpec, digest: str, iterations: int) -> ServerVariables:
        variables = ServerVariables(self.server, spec, iterations)
        self._variables, self._digest, self._failure = variables, digest, None
        self._version = 0
        self._applied_below = 0
        self._applied_above: set[int] = set()
        self._shares: dict[int, dict[int, Push]] = {}
        # Rows that were pulled for the round to come, by the request; and those of the round before, with its rest.
        self._pulled: dict[Hashable, Rows] = {}
        self._before: tuple[dict[Hashable, Rows], Rows] | None = None
        # What the shares of that round have pushed, if another one has closed it.
        self._closed: list[Push] = []
        self._duplicates = 0
        self._staleness: dict[int, int] = {}
        self._journal = Journal()
        return variables

    def exchange(self, push: Push | None, pull: Pull | None, seconds: float) -> Reply:
        """Applies a push, once, and answers a pull.

        Args:
            push: Gradients of a ticket or share.
            pull: What the worker needs next.
            seconds: How long a pull may wait for its version.

        Raises:
            MismatchError: If a push is of another layout; nothing is changed then.
            PeerError: If an update failed half-way: the state is of no use until it is restored.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            variables = self._opened()
            spec = variables.spec
            request = push or pull
            if request is None or request.generation != self._generation:
                return Reply(self._version, status="superseded")
            reply = Reply(self._version)
            if push is not None:
                variables.check(push)
                reply.staleness = max(self._version - push.based_on, 0) if spec.mode == "async" else 0
                reply.applied = self._take(push, variables)
            reply.version = self._version
            if pull is not None:
                self._answer(pull, reply, deadline)
            return reply

    def _opened(self) -> ServerVariables:
        if self._failure is not None:
            raise PeerError(
                f"Server {self.server} could not finish an update: {self._failure!r}. Its state is restored from the "
                "last cut when the job goes on; give it more memory if it ran out of it."
            ) from self._failure
        if self._variables is None:
            raise PeerError(f"Server {self.server} has no state: the chief opens it first.")
        return self._variables

    def _take(self, push: Push, variables: ServerVariables) -> bool:
        """Applies a push, or keeps it until its round is complete; returns whether it counts."""
        if push.ticket < self._applied_below or push.ticket in self._applied_above:
            self._duplicates += 1
            return False
        spec = variables.spec
        if spec.mode == "async":
            staleness = max(self._version - push.based_on, 0)
            self._apply(variables, sum_of([push]), push)
            self._staleness[staleness] = self._staleness.get(staleness, 0) + 1
            return True
        if push.ticket > self._version + _ROUNDS_AHEAD:
            raise MismatchError(
                f"Shares of a round are pushed once the round before is nearly over. Received: round {push.ticket} at "
                f"version {self._version} of server {self.server}. Start all tasks with the same version of lockstep."
            )
        shares = self._shares.setdefault(push.ticket, {})
        if push.share in shares:
            self._duplicates += 1
            return False
        shares[push.share] = push
        # Rounds are applied in order: a later one that is complete waits for its turn.
        while len(self._shares.get(self._version, ())) == spec.shares:
            whole = self._shares.pop(self._version)
            pushes = [whole[i] for i in sorted(whole)]
            # What closes a round has been made of the sum of the others.
            applied = pushes[spec.replicas :] or pushes
            self._closed = pushes[: spec.replicas] if spec.closes else []
            self._apply(variables, sum_of(applied), applied[0])
            self._staleness[0] = self._staleness.get(0, 0) + 1
        return True

    def _apply(self, variables: ServerVariables, total: Sum, push: Push) -> None:
        spec = variables.spec
        dense = variables.dense.values() if spec.mode == "sync" else {}
        try:
            variables.update(total, push.hyper)
        except BaseException as error:
            self._failure = error
            raise
        self._version += 1
        self._pulled, self._before = {}, (self._pulled, dense)
        self._applied_above.add(push.ticket)
        while self._applied_below in self._applied_above:
            self._applied_above.discard(self._applied_below)
            self._applied_below += 1
        if spec.log_order:
            self._journal.append(push.ticket, push.based_on)
        self._changed.notify_all()

    def _answer(self, pull: Pull, reply: Reply, deadline: float) -> None:
        while pull.at_version is not None and self._version < pull.at_version:
            left = deadline - time.monotonic()
            if left <= 0:
                spec = self._opened().spec
                there = self._shares.get(self._version, {})
                reply.status = "waiting"
                reply.missing = tuple(i for i in range(spec.shares) if i not in there)
                return
            self._changed.wait(left)
            self._opened()
            if pull.generation != self._generation:
                reply.status = "superseded"
                return
        if pull.sums:
            self._answer_sums(pull, reply)
            return
        if pull.at_version is not None and self._version > pull.at_version:
            self._answer_again(pull, pull.at_version, reply)
            return
        variables = self._opened()
        reply.version = self._version
        reply.rows = {name: variables.table(name).pull(np.asarray(ids)) for name, ids in pull.rows.items()}
        if pull.at_version is not None:
            self._pulled[_key(pull)] = reply.rows
        if self._version > pull.dense_newer_than:
            reply.dense = variables.dense.values()

    def _answer_again(self, pull: Pull, version: int, reply: Reply) -> None:
        """Answers a pull of the round before as it was answered then, or says that it is too late.

        A worker may die when some servers have its share and others have not. Those others still need the round, of
        which another worker can compute the share only from all servers' values as they were.
        """
        pulled, dense = self._before or ({}, {})
        rows = pulled.get(_key(pull))
        if rows is None or version != self._version - 1:
            reply.status = "late"
            return
        reply.version, reply.rows = version, rows
        if pull.dense_newer_than != version:
            reply.dense = dense

    def _answer_sums(self, pull: Pull, reply: Reply) -> None:
        """Answers with what the shares of a round have pushed, also of the round before: see `_answer_again`."""
        variables = self._opened()
        is_open, is_last = pull.at_version == self._version, pull.at_version == self._version - 1
        there = self._shares.get(self._version, {}) if is_open else dict(enumerate(self._closed if is_last else ()))
        shares = range(variables.spec.replicas)
        missing = tuple(number for number in shares if number not in there)
        if not missing:
            reply.version = self._version - is_last
            reply.rows, reply.dense = variables.of_sum(sum_of([there[number] for number in shares]), pull.rows)
        elif is_open:
            reply.status, reply.missing = "waiting", missing
        else:
            reply.status = "late"

    def read(self, name: str, start: int, stop: int) -> Array:
        """Returns rows of a variable or a slot, as they are now; see `ServerVariables.read`."""
        with self._changed:
            return self._opened().read(name, start, stop)

    def assign(self, name: str, start: int, stop: int, value: Array) -> None:
        """Sets rows of a variable or a slot; see `ServerVariables.assign`."""
        with self._changed:
            self._opened().assign(name, start, stop, value)

    def cut(self, directory: str, step: int) -> CutInfo:
        """Writes the server's state into a directory, whole or not at all.

        Raises:
            CheckpointError: If it cannot be written (the disk is full); what was there stays.
        """
        with self._changed:
            variables = self._opened()
            arrays = {"journal": self._journal.entries, **variables.arrays()}
            layout, facts = variables.spec.layout, self._facts(variables)
            return cuts.write(directory, step, self.server, layout, facts, arrays, self._note_progress)

    def _facts(self, variables: ServerVariables) -> dict[str, Any]:
        return {
            "version": self._version,
            "iterations": variables.iterations,
            "below": self._applied_below,
            "above": sorted(self._applied_above),
            "duplicates": self._duplicates,
            "staleness": sorted(self._staleness.items()),
            "hyper": variables.hyper,
            "journal first": self._journal.first,
        }

    def restore(self, directory: str, manifest: JSON, generation: int) -> None:
        """Goes back to a cut that any number of servers has written.

        Args:
            directory: Of the cut.
            manifest: The chief's: "layout" (`Layout.to_json`), "servers" (a `CutInfo.to_json` of each).
            generation: From now on.

        Raises:
            CheckpointError: If a file is missing, broken, or of another model. Then the state is of no use.
        """
        with self._changed:
            # Whatever has failed before, the cut is whole.
            spec = (self._variables or self._opened()).spec
            written = Layout.from_json(manifest["layout"])
            variables = self._begin(spec, self._digest, 0)
            # Until all has been read, there is no state to be asked for.
            self._failure = RuntimeError("restoring a cut has not ended")
            with cuts.reading(directory, manifest["servers"], written, spec.layout, self._note_progress) as parts:
                self._load(parts, written, variables)
            self._generation = generation
            self._failure = None
            self._changed.notify_all()

    def _load(self, parts: Sequence[cuts.Part], written: Layout, variables: ServerVariables) -> None:
        """Takes the server's shards and counters from the parts of a cut."""
        mine = parts[min(self.server, len(parts) - 1)]
        variables.load(parts, mine, written)
        facts = mine.facts
        self._version = int(facts["version"])
        self._applied_below = int(facts["below"])
        self._applied_above = {int(n) for n in facts["above"]}
        if len(parts) == variables.spec.layout.num_servers:
            self._duplicates = int(facts["duplicates"])
            self._staleness = {int(a): int(b) for a, b in facts["staleness"]}
            self._journal = Journal(int(facts["journal first"]), mine.array("journal"))
        else:
            self._journal = Journal(self._version)

    def save_tables(self, directory: str, step: int, arrays: Mapping[str, Sequence[str]]) -> FileInfo:
        """Writes the server's rows of tables; see `ServerVariables.save_tables`."""
        with self._changed:
            return self._opened().save_tables(directory, step, arrays, self._note_progress)

    def load_tables(self, directory: str, files: Sequence[str], arrays: Mapping[str, Sequence[str]]) -> None:
        """Takes the server's rows of tables from files; see `ServerVariables.load_tables`."""
        with self._changed:
            self._opened().load_tables(directory, files, arrays, self._note_progress)

    def report(self) -> dict[str, Any]:
        """Returns the server's counters: tickets, duplicates, staleness, bytes."""
        with self._changed:
            variables = self._variables
            if variables is None:
                return {"server": self.server, "generation": self._generation, "version": 0, "is_open": False}
            return {
                "server": self.server,
                "generation": self._generation,
                "is_open": self._failure is None,
                "version": self._version,
                "iterations": variables.iterations,
                "applied": self._version,
                "duplicates": self._duplicates,
                "staleness": [[a, b] for a, b in sorted(self._staleness.items())],
                "rows": {name: table.count for name, table in variables.tables.items()},
                "bytes": variables.resident,
                "layout": variables.spec.layout.digest(),
            }

    def journal(self) -> Journal:
        """Returns a copy of the journal; it is empty unless the job logs its order."""
        with self._changed:
            self._opened()
            return Journal(self._journal.first, self._journal.entries)


def _key(pull: Pull) -> Hashable:
    """Returns what is equal for requests of the same rows."""
    return tuple((name, np.asarray(ids).tobytes()) for name, ids in sorted(pull.rows.items()))
