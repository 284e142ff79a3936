"""The variables of one parameter server: its ranges of rows of tables, its dense variables, and what updates them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep._engine.servers import cut as cuts
from lockstep._engine.servers import table_files
from lockstep._engine.servers.compiled import Programs
from lockstep._engine.servers.dense import Dense
from lockstep._engine.servers.layout import Layout
from lockstep._engine.servers.requests import JobSpec, Push
from lockstep._engine.servers.rows import Table
from lockstep._engine.servers.shares import Sum, check_push, rows_of_sum
from lockstep._engine.servers.table_files import FileInfo
from lockstep._types import Array
from lockstep.errors import MismatchError, UnsupportedError


class ServerVariables:
    """Holds one server's shards, reads, assigns and updates them. Not safe for threads: `ServerState` has the lock.

    Args:
        server: The server's number.
        spec: The job's facts.
        iterations: The optimizer's count of steps.

    Attributes:
        spec: The job's facts.
        iterations: The optimizer's count of steps.
        hyper: The numbers of the last update, in the order of `Rule.hyper`.
        tables: The server's rows of tables, by name.
        dense: Its other variables.

    Raises:
        UnsupportedError: If a variable that is updated whole is divided.
    """

    def __init__(self, server: int, spec: JobSpec, iterations: int) -> None:
        own = spec.layout.of_server(server)
        for shard in own:
            if (
                shard.variable in spec.rule.whole
                and shard.stop - shard.start != spec.layout.variable(shard.variable).rows
            ):
                raise UnsupportedError(
                    f"{spec.rule.optimizer} updates {shard.variable!r} whole: it lies on one server. Received: a "
                    f"layout with {shard}. Leave it out of the partitioner's ranges (rule.whole has the names)."
                )
        self.spec, self.iterations = spec, iterations
        self.hyper = list(spec.rule.defaults)
        self._server = server
        self._programs = Programs(spec.rule, iterations)
        variables = {v.name: v for v in spec.layout.variables}
        names = dict.fromkeys(s.variable for s in own if variables[s.variable].kind == "rows")
        self.tables = {
            name: Table(
                variables[name], [s for s in own if s.variable == name], self._programs, spec.initializers.get(name)
            )
            for name in names
        }
        self.dense = Dense(variables, own, self._programs)

    def restart_steps(self, iterations: int) -> None:
        """Goes on with another count of steps; rows are brought up to the old one before."""
        for table in self.tables.values():
            table.settle()
        self._programs.restart(iterations)
        self.iterations = iterations
        for table in self.tables.values():
            table.begin_again()

    def check(self, push: Push) -> None:
        """Raises `MismatchError` for a push of another layout."""
        check_push(push, self.spec, self.dense, self.tables)

    def update(self, total: Sum, hyper: Mapping[str, float]) -> None:
        """Applies the sum of a step's gradients and differences; an error leaves the variables of no use."""
        self.hyper = [
            float(hyper.get(name, before)) for name, before in zip(self.spec.rule.hyper, self.hyper, strict=True)
        ]
        # Rows are made, and brought up to date, before the first of them changes.
        places = {name: self.tables[name].touch(ids) for name, (ids, _) in total.rows.items()}
        now = self.iterations
        rates = {key: clock.advance(now, self.hyper) for key, clock in self._programs.rates.items()}
        # All programs are under way before the first one's results are waited for.
        updates = {
            name: self.tables[name].begin_push(places[name], gradients, rates[self.tables[name].key], now)
            for name, (_, gradients) in total.rows.items()
        }
        of_dense = self.dense.begin_update(total.dense, rates) if self.spec.rule.program_of else []
        for name, rows in updates.items():
            self.tables[name].end_push(places[name], rows, now)
        self.dense.end_update(of_dense)
        self.dense.add(total.delta)
        self.iterations += 1

    def of_sum(self, total: Sum, rows: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Returns a step's gradients of these rows of tables, and gradients or differences of all other variables."""
        nothing = {name: np.zeros_like(value) for name, value in self.dense.deltas.items()}
        found = {name: rows_of_sum(total, self.table(name).variable, np.asarray(ids)) for name, ids in rows.items()}
        return found, {**nothing, **total.dense, **total.delta}

    def table(self, name: str) -> Table:
        """Returns the server's rows of a table; `MismatchError` if it has none."""
        if name not in self.tables:
            raise MismatchError(
                f"Server {self._server} has rows of {sorted(self.tables)}. Received: a request for {name!r}. Start all "
                "tasks with the same program; their layouts differ."
            )
        return self.tables[name]

    def read(self, name: str, start: int, stop: int) -> Array:
        """Returns rows `start` to `stop` of a variable, or of a slot by "variable/slot", as they are now.

        "iterations" is the optimizer's count of steps. What has no rows (a scalar; a slot of another shape) is whole.

        Raises:
            MismatchError: If the server does not hold it.
        """
        if name == "iterations":
            return np.asarray(self.iterations, np.int64)
        variable, which = self._find(name)
        if variable in self.tables:
            return self.tables[variable].read(which, start, stop)
        array = self._dense_array(variable, which)
        return (
            np.array(array) if self._is_whole(variable, array) else np.array(array[self._range(variable, start, stop)])
        )

    def assign(self, name: str, start: int, stop: int, value: Array) -> None:
        """Sets rows `start` to `stop` of a variable, or of a slot by "variable/slot".

        Raises:
            MismatchError: If the server does not hold it, or the value has another shape.
        """
        variable, which = self._find(name)
        value = np.asarray(value)
        if variable in self.tables:
            table = self.tables[variable]
            _same_shape(name, value.shape, (stop - start, *table.variable.row_shape))
            table.assign(which, start, value)
            return
        array = np.array(self._dense_array(variable, which))
        where = ... if self._is_whole(variable, array) else self._range(variable, start, stop)
        _same_shape(name, value.shape, array[where].shape)
        array[where] = value
        self._set(variable, which, array)

    def assign_own(self, name: str, value: Array) -> None:
        """Sets all of the server's rows of a variable or slot."""
        variable, which = self._find(name)
        if variable in self.tables:
            table = self.tables[variable]
            _same_shape(name, value.shape, (table.length, *table.variable.row_shape))
            offset = 0
            for shard in table.shards:
                table.assign(which, shard.start, value[offset : offset + shard.stop - shard.start])
                offset += shard.stop - shard.start
            return
        _same_shape(name, value.shape, self._dense_array(variable, which).shape)
        self._set(variable, which, np.array(value, self._dense_array(variable, which).dtype))

    def arrays(self) -> dict[str, Array]:
        """Returns what a cut has of the variables, by the names in its file."""
        arrays: dict[str, Array] = {}
        for name, table in self.tables.items():
            arrays.update({f"rows|{name}|{key}": a for key, a in table.state().items()})
        for name, group in self.dense.group_of.items():
            for which in range(len(group.arrays)):
                arrays[f"dense|{name}|{which}"] = group.part(name, which)
        arrays.update({f"delta|{name}|0": a for name, a in self.dense.deltas.items()})
        for key, clock in self._programs.rates.items():
            arrays.update({f"rates|{key}|{part}": a for part, a in clock.state().items()})
        return arrays

    def load(self, parts: Sequence[cuts.Part], mine: cuts.Part, written: Layout) -> None:
        """Takes the server's shards from a cut.

        Args:
            parts: Of the cut, which any number of servers has written.
            mine: The one whose counters are this server's.
            written: The layout of the cut.

        Raises:
            CheckpointError: If a file is damaged.
        """
        for key, clock in self._programs.rates.items():
            clock.load_state(mine.of("rates", key))
        for table in self.tables.values():
            for part in parts:
                state = cuts.rows_of(part, mine, written, table, self._programs)
                if state:
                    table.load_state(state)
        for name, group in self.dense.group_of.items():
            own = self._shards(name)
            for which in range(len(group.arrays)):
                group.set(name, which, cuts.gather(parts, written, own, "dense", name, which))
        for name in self.dense.deltas:
            self.dense.deltas[name] = cuts.gather(parts, written, self._shards(name), "delta", name, 0)
        self.iterations = int(mine.facts["iterations"])
        self.hyper = [float(h) for h in mine.facts["hyper"]]

    def save_tables(
        self, directory: str, step: int, arrays: Mapping[str, Sequence[str]], note: Callable[[], None]
    ) -> FileInfo:
        """Writes the rows of tables into a directory, as they are now; see `table_files.write`.

        Args:
            directory: Of the checkpoint's tables.
            step: Of the checkpoint.
            arrays: By table: the names of its value and its slots, in this order.
            note: Called after each piece.

        Raises:
            CheckpointError: If they cannot be written.
        """
        path = os.path.join(directory, f"rows_{self._server}_of_{self.spec.layout.num_servers}.npz")
        tables = {name: (table, arrays[name]) for name, table in self.tables.items() if name in arrays}
        return table_files.write(path, step, tables, self.spec.initializers, note)

    def load_tables(
        self, directory: str, files: Sequence[str], arrays: Mapping[str, Sequence[str]], note: Callable[[], None]
    ) -> None:
        """Takes the rows of tables, from files that any number of servers has written.

        Raises:
            CheckpointError: If one cannot be read.
        """
        for name, keys in arrays.items():
            if name in self.tables:
                table_files.load([os.path.join(directory, f) for f in files], self.tables[name], keys, note)

    @property
    def resident(self) -> int:
        """The bytes of memory that values and slots take."""
        dense = sum(a.nbytes for g in self.dense.groups for a in g.arrays)
        return dense + sum(t.resident for t in self.tables.values())

    def _find(self, name: str) -> tuple[str, int]:
        """Returns a variable, and the number of the array: 0 for its value, from 1 for slots."""
        for variable in (*self.tables, *self.dense.group_of, *self.dense.deltas):
            if name == variable:
                return variable, 0
            if name.startswith(f"{variable}/") and variable not in self.dense.deltas:
                slots = [s.name for s in self.spec.rule.program(variable).slots]
                if name.removeprefix(f"{variable}/") in slots:
                    return variable, 1 + slots.index(name.removeprefix(f"{variable}/"))
        raise MismatchError(f"Server {self._server} does not hold {name!r}. Start all tasks with the same program.")

    def _dense_array(self, variable: str, which: int) -> Array:
        if variable in self.dense.deltas:
            return self.dense.deltas[variable]
        return self.dense.group_of[variable].part(variable, which)

    def _set(self, variable: str, which: int, array: Array) -> None:
        if variable in self.dense.deltas:
            self.dense.deltas[variable] = array
        else:
            self.dense.group_of[variable].set(variable, which, array)

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
            f"Server {self._server} has rows {[(s.start, s.stop) for s in self._shards(variable)]} of {variable!r}. "
            f"Received: a request for {start} to {stop}. Start all tasks with the same program; their layouts differ."
        )

    def _shards(self, variable: str) -> list[Any]:
        return [s for s in self.spec.layout.of_server(self._server) if s.variable == variable]


def _same_shape(name: str, received: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if tuple(received) != tuple(expected):
        raise MismatchError(
            f"Values of {name!r} have the shape of the server's rows of it, {tuple(expected)}. Received: "
            f"{tuple(received)}. Start all tasks with the same program; the model has changed."
        )
