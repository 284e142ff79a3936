"""The state of one parameter server: shards, and which tickets are in them. No sockets; safe for threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep._engine.servers import cut as cuts
from lockstep._engine.servers import table_files
from lockstep._engine.servers.compiled import Programs
from lockstep._engine.servers.dense import Dense
from lockstep._engine.servers.journal import Journal
from lockstep._engine.servers.layout import Layout
from lockstep._engine.servers.requests import CutInfo, JobSpec, Pull, Push, Reply
from lockstep._engine.servers.rows import Table
from lockstep._engine.servers.shares import Sum, check_push, sum_of
from lockstep._engine.servers.table_files import FileInfo
from lockstep._types import JSON, Array
from lockstep.errors import MismatchError, PeerError, UnsupportedError

# Shares of later rounds are kept: workers are at most one round ahead of the slowest server.
_ROUNDS_AHEAD = 2
Rows = dict[str, Array]


class ServerState:
    """Holds the state of one server, and changes it.

    Args:
        server: Its number.
    """

    def __init__(self, server: int) -> None:
        self.server = server
        self._changed = threading.Condition()
        self._spec: JobSpec | None = None
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
            if is_new or self._spec is None or digest != self._digest or self._failure is not None:
                self._begin(spec, digest, iterations or 0)
            elif iterations is not None and iterations != self._iterations:
                self._restart_steps(iterations)
            self._generation = generation
            self._shares = {}
            self._pulled, self._before = {}, None
            for name, value in initial.items():
                if name != "iterations":
                    self._set_own(name, np.asarray(value))
            self._changed.notify_all()

    def _begin(self, spec: JobSpec, digest: str, iterations: int) -> None:
        own = spec.layout.of_server(self.server)
        for shard in own:
            if (
                shard.variable in spec.rule.whole
                and shard.stop - shard.start != spec.layout.variable(shard.variable).rows
            ):
                raise UnsupportedError(
                    f"{spec.rule.optimizer} updates {shard.variable!r} whole: it lies on one server. Received: a "
                    f"layout with {shard}. Leave it out of the partitioner's ranges (rule.whole has the names)."
                )
        self._spec, self._digest, self._failure = spec, digest, None
        self._programs = Programs(spec.rule, iterations)
        variables = {v.name: v for v in spec.layout.variables}
        tables = dict.fromkeys(s.variable for s in own if variables[s.variable].kind == "rows")
        self._tables = {
            name: Table(
                variables[name], [s for s in own if s.variable == name], self._programs, spec.initializers.get(name)
            )
            for name in tables
        }
        self._dense = Dense(variables, own, self._programs)
        self._iterations = iterations
        self._version = 0
        self._applied_below = 0
        self._applied_above: set[int] = set()
        self._shares: dict[int, dict[int, Push]] = {}
        # Rows that were pulled for the round to come, by the request; and those of the round before, with its rest.
        self._pulled: dict[Hashable, Rows] = {}
        self._before: tuple[dict[Hashable, Rows], Rows] | None = None
        self._duplicates = 0
        self._staleness: dict[int, int] = {}
        self._hyper = list(spec.rule.defaults)
        self._journal = Journal()

    def _restart_steps(self, iterations: int) -> None:
        """Goes on with another count of steps; rows are brought up to the old one before."""
        for table in self._tables.values():
            table.settle()
        self._programs.restart(iterations)
        self._iterations = iterations
        for table in self._tables.values():
            table.begin_again()

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
            spec = self._opened()
            request = push or pull
            if request is None or request.generation != self._generation:
                return Reply(self._version, status="superseded")
            reply = Reply(self._version)
            if push is not None:
                check_push(push, spec, self._dense, self._tables)
                reply.staleness = max(self._version - push.based_on, 0) if spec.mode == "async" else 0
                reply.applied = self._take(push, spec)
            reply.version = self._version
            if pull is not None:
                self._answer(pull, reply, deadline)
            return reply

    def _opened(self) -> JobSpec:
        if self._failure is not None:
            raise PeerError(
                f"Server {self.server} could not finish an update: {self._failure!r}. Its state is restored from the "
                "last cut when the job goes on; give it more memory if it ran out of it."
            ) from self._failure
        if self._spec is None:
            raise PeerError(f"Server {self.server} has no state: the chief opens it first.")
        return self._spec

    def _take(self, push: Push, spec: JobSpec) -> bool:
        """Applies a push, or keeps it until its round is complete; returns whether it counts."""
        if push.ticket < self._applied_below or push.ticket in self._applied_above:
            self._duplicates += 1
            return False
        if spec.mode == "async":
            staleness = max(self._version - push.based_on, 0)
            self._apply(sum_of([push]), push)
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
        while len(self._shares.get(self._version, ())) == spec.replicas:
            whole = self._shares.pop(self._version)
            self._apply(sum_of([whole[i] for i in sorted(whole)]), whole[0])
            self._staleness[0] = self._staleness.get(0, 0) + 1
        return True

    def _apply(self, total: Sum, push: Push) -> None:
        spec = self._opened()
        self._hyper = [
            float(push.hyper.get(name, before)) for name, before in zip(spec.rule.hyper, self._hyper, strict=True)
        ]
        try:
            # Rows are made, and brought up to date, before the first of them changes.
            places = {name: self._tables[name].touch(ids) for name, (ids, _) in total.rows.items()}
            now = self._iterations
            dense = self._dense.values() if spec.mode == "sync" else {}
            rates = {key: clock.advance(now, self._hyper) for key, clock in self._programs.rates.items()}
            for name, (_, gradients) in total.rows.items():
                table = self._tables[name]
                table.push(places[name], gradients, rates[table.key], now)
            if spec.rule.program_of:
                self._dense.update(total.dense, rates)
            self._dense.add(total.delta)
        except BaseException as error:
            self._failure = error
            raise
        self._iterations += 1
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
                spec = self._opened()
                there = self._shares.get(self._version, {})
                reply.status = "waiting"
                reply.missing = tuple(i for i in range(spec.replicas) if i not in there)
                return
            self._changed.wait(left)
            self._opened()
            if pull.generation != self._generation:
                reply.status = "superseded"
                return
        if pull.at_version is not None and self._version > pull.at_version:
            self._answer_again(pull, pull.at_version, reply)
            return
        reply.version = self._version
        reply.rows = {name: self._table(name).pull(np.asarray(ids)) for name, ids in pull.rows.items()}
        if pull.at_version is not None:
            self._pulled[_key(pull)] = reply.rows
        if self._version > pull.dense_newer_than:
            reply.dense = self._dense.values()

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

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            raise MismatchError(
                f"Server {self.server} has rows of {sorted(self._tables)}. Received: a request for {name!r}. Start all "
                "tasks with the same program; their layouts differ."
            )
        return self._tables[name]

    def read(self, name: str, start: int, stop: int) -> Array:
        """Returns rows `start` to `stop` of a variable, or of a slot by "variable/slot", as they are now.

        "iterations" is the optimizer's count of steps. What has no rows (a scalar; a slot of another shape) is whole.

        Raises:
            MismatchError: If the server does not hold it.
        """
        with self._changed:
            self._opened()
            if name == "iterations":
                return np.asarray(self._iterations, np.int64)
            variable, which = self._find(name)
            if variable in self._tables:
                return self._tables[variable].read(which, start, stop)
            array = self._own(variable, which)
            return (
                np.array(array)
                if self._is_whole(variable, array)
                else np.array(array[self._range(variable, start, stop)])
            )

    def assign(self, name: str, start: int, stop: int, value: Array) -> None:
        """Sets rows `start` to `stop` of a variable, or of a slot by "variable/slot".

        Raises:
            MismatchError: If the server does not hold it, or the value has another shape.
        """
        with self._changed:
            self._opened()
            variable, which = self._find(name)
            value = np.asarray(value)
            if variable in self._tables:
                table = self._tables[variable]
                _same_shape(name, value.shape, (stop - start, *table.variable.row_shape))
                table.assign(which, start, value)
                return
            array = np.array(self._own(variable, which))
            where = ... if self._is_whole(variable, array) else self._range(variable, start, stop)
            _same_shape(name, value.shape, array[where].shape)
            array[where] = value
            self._set(variable, which, array)

    def _find(self, name: str) -> tuple[str, int]:
        """Returns a variable, and the number of the array: 0 for its value, from 1 for slots."""
        for variable in (*self._tables, *self._dense.group_of, *self._dense.deltas):
            if name == variable:
                return variable, 0
            if name.startswith(f"{variable}/") and variable not in self._dense.deltas:
                slots = [s.name for s in self._opened().rule.program(variable).slots]
                if name.removeprefix(f"{variable}/") in slots:
                    return variable, 1 + slots.index(name.removeprefix(f"{variable}/"))
        raise MismatchError(f"Server {self.server} does not hold {name!r}. Start all tasks with the same program.")

    def _own(self, variable: str, which: int) -> Array:
        if variable in self._dense.deltas:
            return self._dense.deltas[variable]
        return self._dense.group_of[variable].part(variable, which)

    def _set(self, variable: str, which: int, array: Array) -> None:
        if variable in self._dense.deltas:
            self._dense.deltas[variable] = array
        else:
            self._dense.group_of[variable].set(variable, which, array)

    def _is_whole(self, variable: str, array: Array) -> bool:
        """Returns whether an array is read and assigned at once: it has no rows of its variable."""
        rows = sum(s.stop - s.start for s in self._shards(variable))
        return not array.ndim or array.shape[0] != rows

    def _range(self, variable: str, start: int, stop: int) -> slice:
        """Returns where rows of a variable lie among the server's own."""
        offset = 0
        for shard in self._shards(variable):
            if shard.start <= start and stop <= shard.stop:
                return slice(offset + start - shard.start, offset + stop - shard.start)
            offset += shard.stop - shard.start
        raise MismatchError(
            f"Server {self.server} has rows {[(s.start, s.stop) for s in self._shards(variable)]} of {variable!r}. "
            f"Received: a request for {start} to {stop}. Start all tasks with the same program; their layouts differ."
        )

    def _shards(self, variable: str) -> list[Any]:
        assert self._spec is not None
        return [s for s in self._spec.layout.of_server(self.server) if s.variable == variable]

    def _set_own(self, name: str, value: Array) -> None:
        """Sets all of the server's rows of a variable or slot."""
        variable, which = self._find(name)
        if variable in self._tables:
            table = self._tables[variable]
            _same_shape(name, value.shape, (table.length, *table.variable.row_shape))
            offset = 0
            for shard in table.shards:
                table.assign(which, shard.start, value[offset : offset + shard.stop - shard.start])
                offset += shard.stop - shard.start
            return
        _same_shape(name, value.shape, self._own(variable, which).shape)
        self._set(variable, which, np.array(value, self._own(variable, which).dtype))

    def cut(self, directory: str, step: int) -> CutInfo:
        """Writes the server's state into a directory, whole or not at all.

        Raises:
            CheckpointError: If it cannot be written (the disk is full); what was there stays.
        """
        with self._changed:
            spec = self._opened()
            return cuts.write(directory, step, self.server, spec.layout, self._facts(), self._arrays())

    def _facts(self) -> dict[str, Any]:
        return {
            "version": self._version,
            "iterations": self._iterations,
            "below": self._applied_below,
            "above": sorted(self._applied_above),
            "duplicates": self._duplicates,
            "staleness": sorted(self._staleness.items()),
            "hyper": self._hyper,
            "journal first": self._journal.first,
        }

    def _arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {"journal": self._journal.entries}
        for name, table in self._tables.items():
            arrays.update({f"rows|{name}|{key}": a for key, a in table.state().items()})
        for name, group in self._dense.group_of.items():
            for which in range(len(group.arrays)):
                arrays[f"dense|{name}|{which}"] = group.part(name, which)
        arrays.update({f"delta|{name}|0": a for name, a in self._dense.deltas.items()})
        for key, clock in self._programs.rates.items():
            arrays.update({f"rates|{key}|{part}": a for part, a in clock.state().items()})
        return arrays

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
            if self._spec is None:
                self._opened()
            spec = self._spec
            assert spec is not None
            written = Layout.from_json(manifest["layout"])
            self._begin(spec, self._digest, 0)
            # Until all has been read, there is no state to be asked for.
            self._failure = RuntimeError("restoring a cut has not ended")
            with cuts.reading(directory, manifest["servers"], written, spec.layout) as parts:
                self._load(parts, written, spec)
            self._generation = generation
            self._failure = None
            self._changed.notify_all()

    def _load(self, parts: Sequence[cuts.Part], written: Layout, spec: JobSpec) -> None:
        """Takes the server's shards and counters from the parts of a cut."""
        mine = parts[min(self.server, len(parts) - 1)]
        for key, clock in self._programs.rates.items():
            clock.load_state(mine.of("rates", key))
        for table in self._tables.values():
            for part in parts:
                state = cuts.rows_of(part, mine, written, table, self._programs)
                if state:
                    table.load_state(state)
        for name, group in self._dense.group_of.items():
            own = self._shards(name)
            for which in range(len(group.arrays)):
                group.set(name, which, cuts.gather(parts, written, own, "dense", name, which))
        for name in self._dense.deltas:
            self._dense.deltas[name] = cuts.gather(parts, written, self._shards(name), "delta", name, 0)
        facts = mine.facts
        self._version, self._iterations = int(facts["version"]), int(facts["iterations"])
        self._applied_below = int(facts["below"])
        self._applied_above = {int(n) for n in facts["above"]}
        self._hyper = [float(h) for h in facts["hyper"]]
        if len(parts) == spec.layout.num_servers:
            self._duplicates = int(facts["duplicates"])
            self._staleness = {int(a): int(b) for a, b in facts["staleness"]}
            self._journal = Journal(int(facts["journal first"]), mine.array("journal"))
        else:
            self._journal = Journal(self._version)

    def save_tables(self, directory: str, step: int, arrays: Mapping[str, Sequence[str]]) -> FileInfo:
        """Writes the server's rows of tables into a directory, as they are now; see `table_files.write`.

        Args:
            directory: Of the checkpoint's tables.
            step: Of the checkpoint.
            arrays: By table: the names of its value and its slots, in this order.

        Raises:
            CheckpointError: If they cannot be written.
        """
        with self._changed:
            spec = self._opened()
            path = os.path.join(directory, f"rows_{self.server}_of_{spec.layout.num_servers}.npz")
            tables = {name: (table, arrays[name]) for name, table in self._tables.items() if name in arrays}
            return table_files.write(path, step, tables, spec.initializers)

    def load_tables(self, directory: str, files: Sequence[str], arrays: Mapping[str, Sequence[str]]) -> None:
        """Takes the server's rows of tables, from files that any number of servers has written.

        Raises:
            CheckpointError: If one cannot be read.
        """
        with self._changed:
            self._opened()
            for name, keys in arrays.items():
                if name in self._tables:
                    table_files.load([os.path.join(directory, f) for f in files], self._tables[name], keys)

    def report(self) -> dict[str, Any]:
        """Returns the server's counters: tickets, duplicates, staleness, bytes."""
        with self._changed:
            if self._spec is None:
                return {"server": self.server, "generation": self._generation, "version": 0, "is_open": False}
            dense = sum(a.nbytes for g in self._dense.groups for a in g.arrays)
            return {
                "server": self.server,
                "generation": self._generation,
                "is_open": self._failure is None,
                "version": self._version,
                "iterations": self._iterations,
                "applied": self._version,
                "duplicates": self._duplicates,
                "staleness": [[a, b] for a, b in sorted(self._staleness.items())],
                "rows": {name: table.count for name, table in self._tables.items()},
                "bytes": dense + sum(t.resident for t in self._tables.values()),
                "layout": self._spec.layout.digest(),
            }

    def journal(self) -> Journal:
        """Returns a copy of the journal; it is empty unless the job logs its order."""
        with self._changed:
            self._opened()
            return Journal(self._journal.first, self._journal.entries)


def _key(pull: Pull) -> Hashable:
    """Returns what is equal for requests of the same rows."""
    return tuple((name, np.asarray(ids).tobytes()) for name, ids in sorted(pull.rows.items()))


def _same_shape(name: str, received: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if tuple(received) != tuple(expected):
        raise MismatchError(
            f"Values of {name!r} have the shape of the server's rows of it, {tuple(expected)}. Received: "
            f"{tuple(received)}. Start all tasks with the same program; the model has changed."
        )
