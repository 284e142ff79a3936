"""A training on the chief: its program, whose steps other tasks may compute, and the variables that servers hold."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.input import random_state
from lockstep._engine.keras.servers.options import ServerOptions
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.chief_tickets import ChiefTickets
from lockstep._engine.servers.layout import Layout
from lockstep._engine.servers.requests import JobSpec, Pull
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.batches import DeviceBatch, Outputs
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Batches, Data
from lockstep.estimator._model_fn.steps import shards_of
from lockstep.estimator._model_fn.variables import GLOBAL_STEP, FirstValues
from lockstep.estimator._servers.client import Beginning, TicketClient, outputs_in
from lockstep.estimator._servers.saved_tables import SavedTables
from lockstep.estimator._servers.tables import TableOptions, row_initializer
from lockstep.estimator._servers.textless import TextlessProgram
from lockstep.estimator._servers.update import ServedUpdate, served_update
from lockstep.estimator._weights import TabledValues


class ServedVariables:
    """The variables of a model_fn: the chief's until servers are opened with them, then theirs.

    Args:
        compiled: The model_fn.
        values: The first values, by key.
    """

    is_sharded = False

    def __init__(self, compiled: CompiledModelFn, values: Mapping[str, Any]) -> None:
        self._entries = compiled.variables.entries
        self._assigned: dict[str, np.ndarray] = {}
        self._first = values
        self._served: _Served | None = None

    def __contains__(self, key: str) -> bool:
        return key in self._first

    @property
    def global_step(self) -> int:
        """Returns the number of steps done."""
        return int(self.value(GLOBAL_STEP))

    @property
    def first(self) -> Mapping[str, np.ndarray]:
        """The values with which servers are opened, by key."""
        return ChainMap(self._assigned, cast("dict[str, np.ndarray]", self._first))

    def is_initial(self, key: str) -> bool:
        """Returns whether a variable begins with what its initializer makes, which nobody has asked for."""
        return key not in self._assigned and isinstance(self._first, FirstValues)

    @property
    def values_by_rows(self) -> TabledValues | None:
        """The values of a checkpoint with tables by rows, if they are these."""
        return self._first if isinstance(self._first, TabledValues) else None

    def serve(self, served: _Served) -> None:
        """Has values come from the servers from now on."""
        self._served = served

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes and dtypes of the variables."""
        return {key: jax.ShapeDtypeStruct(e.shape, jnp.dtype(e.dtype)) for key, e in self._entries.items()}

    def assign(self, key: str, value: np.ndarray) -> None:
        """Sets a variable, before the servers are opened.

        Raises:
            UnsupportedError: Later.
        """
        if self._served is not None:
            raise UnsupportedError(
                "Once training has begun servers hold the variables, and updates alone change them. Received: an "
                f"assignment to {key!r}. Assign it in Scaffold(init_fn=...)."
            )
        self._assigned[key] = np.asarray(value)

    def local(self, keys: Iterable[str]) -> dict[str, Any]:
        """Returns the values of some variables."""
        if self._served is None:
            return {key: np.asarray(self.first[key]) for key in keys}
        return self._served.values(keys)

    def value(self, key: str) -> np.ndarray:
        """Returns a variable's value."""
        return np.asarray(self.local([key])[key])

    def take(self) -> Any:
        """Returns nothing: the state is on the servers."""
        return ()

    def give(self, state: Any) -> None:
        """Takes nothing."""
        del state


class _Served:
    """Variables on the servers, as the chief reads them."""

    def __init__(
        self,
        call: ChiefCall,
        update: ServedUpdate,
        first: Mapping[str, np.ndarray],
        beginning: Beginning,
        tickets: ChiefTickets,
        draws: Mapping[str, np.ndarray],
    ) -> None:
        self._call, self._update, self._first, self._beginning = call, update, first, beginning
        self._tickets, self._draws = tickets, draws
        self._held = {v.name for v in update.variables if v.kind != "rows"}
        # Tables and slots, which are read one by one.
        self._single = {key: name for name, key in update.slots.items()} | {key: key for key in update.tables}

    def values(self, keys: Iterable[str]) -> dict[str, Any]:
        """Returns values as they are now, by key."""
        keys = list(keys)
        steps, found = self._tickets.steps, dict[str, Any]()
        if self._held & set(keys):
            # In one message: they are of one moment.
            reply = self._call.exchange(None, Pull(self._call.generation, {}, -1, None))
            found = {name: np.array(value) for name, value in (reply.dense or {}).items() if name in keys}
        found |= {key: np.asarray(self._call.read(self._single[key])) for key in keys if key in self._single}
        scalars = self._update.scalars
        if set(scalars) & set(keys):
            now = self._update.advance([self._first[key] for key in scalars], steps)
            found |= {k: np.asarray(v, self._first[k].dtype) for k, v in zip(scalars, now, strict=True) if k in keys}
        if set(self._beginning.seeds) & set(keys):
            states = self._beginning.seeds_of(steps, self._draws)
            found |= {key: value for key, value in states.items() if key in keys}
        # What nothing changes is what it was.
        return {key: found[key] if key in found else self._first[key] for key in keys}


class ServedProgram(TextlessProgram):
    """The training step of a model_fn, of which the chief's loop waits for the update.

    Args:
        compiled: The model_fn.
        call: The call of all tasks.
        options: The servers.
        ahead: How many tickets are released at most before the first of them is applied.

    Attributes:
        horizon: Returns how many tickets may be released, from the next one on.
        requested: Names of values that hooks ask for, which all tasks return.
        batches: How many batches there are; `None` until the data end.
        position: Returns where the data stand, for workers.
    """

    def __init__(self, compiled: CompiledModelFn, call: ChiefCall, options: ServerOptions, ahead: int) -> None:
        super().__init__(compiled)
        _demand_one_synchrony(compiled, options)
        self._call = call
        self._options = options
        self._ahead = ahead
        self._variables: ServedVariables | None = None
        self._client: TicketClient | None = None
        self._closes = False
        self._tickets: ChiefTickets | None = None
        self._update: ServedUpdate | None = None
        self._saved_tables: SavedTables | None = None
        self.horizon: Callable[[], int] = lambda: 1
        self.requested: list[str] = []
        self.batches: int | None = None
        self.position: Callable[[], Any] = lambda: None

    def serve(self, variables: ServedVariables, example: Data) -> None:
        """Has the first step open the servers with these variables.

        Args:
            variables: The variables.
            example: A batch, which says how they are used.
        """
        self._variables = variables
        entries = self._compiled.variables.entries
        if any(entry.trainable and self._options_of_tables.is_table(entry) for entry in entries.values()):
            # Before the first step: a checkpoint is written before it, too.
            self._plan(self._shards(self.prepare(example)).data[0])

    def tables_by_rows(self) -> frozenset[str]:
        """Returns the keys of what checkpoints hold by rows."""
        return frozenset() if self._saved_tables is None else self._saved_tables.keys(self._tickets is not None)

    def save_tables(self, prefix: str, step: int) -> dict[str, Any]:
        """Has the tables of a checkpoint written; returns what it says of them."""
        if self._saved_tables is None:
            return {}
        tickets = self._tickets
        call, done = (None, 0) if tickets is None else (self._call, tickets.steps)
        return self._saved_tables.save(call, prefix, step, done)

    @property
    def _options_of_tables(self) -> TableOptions:
        return TableOptions(self._options.policy, self._options.lazy, self._compiled.variables.partitions)

    def _plan(self, data: Data) -> ServedUpdate:
        """Returns the update, for a batch of which only shapes matter, and finds out which tables there are."""
        assert self._variables is not None
        if self._update is None:
            compiled, variables = self._compiled, self._variables
            first, entries = variables.first, compiled.variables.entries
            parts, tables = compiled.training_parts(), self._options_of_tables
            self._update = update = served_update(parts, entries, first, data, tables)
            made = {key: row_initializer(entries[key], entries) for key in update.tables if variables.is_initial(key)}
            initializers = {key: program for key, program in made.items() if program is not None}
            self._saved_tables = SavedTables(update, entries, initializers, variables.values_by_rows)
        return self._update

    def run(self, state: Any, placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Returns when the update of the batch is applied, whoever has computed it."""
        data = placed.data
        if self._tickets is None:
            self._tickets = self._open(data)
        tickets = self._tickets
        ticket = tickets.next
        reports = tickets.step(data, self.horizon(), {})
        for report in reports:
            tickets.check_data(ticket, data, report)
        shown = self._combine_outputs(self._shards(data), [outputs_in(report) for report in reports])
        return Outputs(None, None, lambda _: shown), state

    def _shards(self, data: Data | Batches) -> Shards:
        return shards_of(data, self._options.shares)

    def _combine_outputs(self, shards: Shards, reports: Sequence[Mapping[int, np.ndarray]]) -> Any:
        """Returns the outputs of an update for hooks, of what its shares have reported."""
        assert self._client is not None
        step, parts = self._client.step, shards.data
        outputs = [step.outputs_of(p, [r[i] for i in range(len(r))]) for p, r in zip(parts, reports, strict=False)]
        shown = jax.tree.map(partial(_combine, shards.weights), *outputs)
        shown["loss"] = _combine(shards.of_loss(step.reduction).weights, *[each["loss"] for each in outputs])
        if not self._closes:
            return shown
        # What was made of the gradients of all shares comes from the task that has closed the round.
        leaves, structure = jax.tree.flatten(shown)
        for number, value in reports[-1].items():
            leaves[number] = value
        return jax.tree.unflatten(structure, leaves)

    @property
    def outstanding(self) -> int:
        """The number of tickets that were released and are not applied."""
        return 0 if self._tickets is None else self._tickets.released - self._tickets.next

    def is_settled(self) -> bool:
        """Returns whether all tickets that were released are applied, and no more."""
        return self._tickets is None or (self.outstanding == 0 and self._call.is_quiet(self._tickets.next))

    def end(self) -> None:
        """Ends the epoch on the servers, after the last step."""
        if self._tickets is not None:
            self._call.end_epoch(self._tickets.steps)

    def _open(self, data: Data | Batches) -> ChiefTickets:
        compiled, options, variables = self._compiled, self._options, self._variables
        part, together = self._shards(data).data[0], compiled.batches_of_update
        # A SyncReplicasOptimizer says by itself that updates wait for their batches.
        mode, shares = (options.mode, options.shares) if together is None else ("sync", together)
        # What each batch of a SyncReplicasOptimizer makes of its gradients it makes of its own.
        closes = together is None and shares > 1 and compiled.asks_for_gradients
        assert variables is not None
        # ---- The update, for the batch at hand: only shapes of gradients matter ----
        first, entries, tables = variables.first, compiled.variables.entries, self._options_of_tables
        update, saved = self._plan(part), self._saved_tables
        assert saved is not None
        initializers = saved.initializers
        ranges = {v.name: tables.ranges_of(v) for v in update.variables if v.kind == "rows"}
        divided = {name: sizes for name, sizes in ranges.items() if sizes is not None}
        layout = Layout.make(update.variables, options.job.num_servers, divided)
        spec = JobSpec(layout, update.rule, mode, shares, initializers, options.log_order, closes)
        # ---- Servers begin anew, with the chief's values ----
        options.served.make_room()
        seeds = {key: first[key] for key, entry in entries.items() if entry.is_seed}
        increment, start = compiled.increment, int(first[GLOBAL_STEP])
        # Of tables with a program, servers make rows, of slots with the number that they begin with; or they read them.
        made = {*initializers, *saved.restored}
        initial = {v.name: first[v.name] for v in update.variables if v.name not in made}
        initial |= {
            name: first[key]
            for name, key in update.slots.items()
            if not (
                (table := name.rpartition("/")[0]) in saved.restored
                or (table in update.tables and variables.is_initial(key))
            )
        }
        initial["iterations"] = np.asarray(0)
        extra = {"requested": self.requested, "random": random_state.snapshot(), "global_step": start}
        self._call.open(spec, initial, extra, options.staleness, is_new=True)
        saved.load(self._call)
        beginning = Beginning(start, increment, seeds)
        # ---- The one epoch of the call ----
        client = self._client = TicketClient(self._call, compiled, spec)
        self._closes = closes
        tickets = ChiefTickets(self._call, client, mode != "sync", self._ahead)
        facts = {"random": random_state.snapshot(), "data": self.position(), "beginning": beginning.to_json()}
        client.begin_epoch(facts)
        tickets.begin_epoch(0, 0, self.batches, facts)
        variables.serve(_Served(self._call, update, first, beginning, tickets, client.step.draws(part)))
        return tickets


def _combine(weights: Sequence[float], *values: Any) -> Any:
    """Returns an output of an update for hooks: the mean of a float over its shares, else the first one's value."""
    first = np.asarray(values[0])
    if len(values) == 1 or first.shape or not jnp.issubdtype(first.dtype, np.inexact):
        return values[0]
    weighted = [value * np.asarray(w, first.dtype) for w, value in zip(weights, values, strict=True)]
    return np.asarray(sum(weighted), first.dtype)


def _demand_one_synchrony(compiled: CompiledModelFn, options: ServerOptions) -> None:
    """Refuses a SyncReplicasOptimizer with options that say otherwise of what an update is made."""
    if compiled.batches_of_update is None:
        return
    if options.shares > 1:
        raise UnsupportedError(
            "Updates are made of the batches of a SyncReplicasOptimizer, or of a strategy's replicas. Received: that "
            f'optimizer in a training with ParameterServerStrategy(mode="sync", replicas={options.shares}). Use the '
            "optimizer that it wraps; or leave replicas out, and say how many in replicas_to_aggregate."
        )
    if options.staleness is not None:
        raise ArgumentError(
            "Updates of a SyncReplicasOptimizer miss none of the others. Received: one in a training with "
            f"ParameterServerStrategy(staleness={options.staleness}). Leave staleness out, or use the optimizer "
            "that it wraps."
        )


class SettledSignals:
    """Signals of hooks that act between two tickets, when none is under way.

    Args:
        program: The program.
    """

    def __init__(self, program: ServedProgram) -> None:
        self._program = program
        self._sent: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Returns whether a signal waits for the tickets that are under way."""
        return bool(self._sent)

    def broadcast(self, signal: str) -> None:
        """Has no more tickets released until the signal is received."""
        self._sent.add(signal)

    def has_received(self, signal: str) -> bool:
        """Returns whether the signal was sent and no ticket is under way, and forgets it then."""
        if signal not in self._sent or not self._program.is_settled():
            return False
        self._sent.discard(signal)
        return True
