"""Training on the chief: its loop goes through all batches in order, whoever computes them."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from keras.src import backend

from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.replica_step import is_seed
from lockstep._engine.keras.servers.clipping import check_optimizer
from lockstep._engine.keras.servers.deferred import Deferred, defer, defer_again, held_value
from lockstep._engine.keras.servers.held import HeldModel, seeds_of
from lockstep._engine.keras.servers.options import ServerOptions
from lockstep._engine.keras.servers.spec import initial_values, rows_of_plan, slots_of, spec_of
from lockstep._engine.keras.servers.tables import Table
from lockstep._engine.keras.servers.ticket_client import LOG, METRIC, TicketClient, Training
from lockstep._engine.keras.servers.ticket_program import TicketProgram
from lockstep._engine.servers.batch_shares import seeds_for
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.chief_tickets import Applied, ChiefTickets
from lockstep._engine.servers.requests import JobSpec, Pull
from lockstep._engine.servers.ticket_exchange import STALENESS
from lockstep._engine.servers.tickets import WINDOW
from lockstep._engine.step.batches import Outputs
from lockstep._types import Array, Batch
from lockstep.errors import Preempted

# Leases run so far ahead of the chief's loop: enough for many workers, and reports that wait take little memory.
_AHEAD = 64
# The loop may be so many bytes of batches ahead of the updates, and no more batches than may be leased.
_BEHIND_BYTES = 64 << 20
# What the directory of a cut is called, before the number of its ticket; and how many stay.
CUT = "servers-"
_KEPT = 3
# Of variables that travel whole nothing is wanted.
_NEWER_THAN_ANY = 1 << 62
Report = Mapping[str, Array]


@dataclass
class _Totals:
    """Holds the totals of an epoch.

    Attributes:
        metrics: The metrics' variables; `None` before its first step.
        logs: What the last step has logged itself, if it logs anything but metrics.
    """

    metrics: list[np.ndarray] | None = None
    logs: dict[str, Any] = field(default_factory=dict[str, Any])


class ChiefTraining:
    """One training, on the chief.

    Args:
        call: The call of all tasks.
        model: Built, with its optimizer.
        owned: The model's record.
        options: The servers.
        program: The model's step.

    Attributes:
        cut_directory: Where servers write their shards when a backup is saved; `None` without backups.
        restore_from: The cut that servers begin from; `None` to begin with the chief's values.
        horizon: Returns how many steps may follow before something must happen between two of them, given the step.
        is_watched: Whether something acts after each step, and must find its update applied.
        staleness: How many updates each update of this epoch has missed.
    """

    def __init__(
        self, call: ChiefCall, model: Any, owned: Ownership, options: ServerOptions, program: TicketProgram
    ) -> None:
        check_optimizer(model.optimizer, options.shares)
        self._call = call
        self._model = model
        self._owned = owned
        self._options = options
        self._program = program
        self._training: Training | None = None
        self._tickets: ChiefTickets | None = None
        self._marks: dict[str, tuple[Any, Deferred]] = {}
        self._snapshot: tuple[int, dict[str, Array]] | None = None
        self._totals = _Totals()
        self._epoch: dict[str, Any] | None = None
        self._before: list[tuple[Any, Any]] = []
        self.cut_directory: str | None = None
        self.restore_from: str | None = None
        self._cuts: list[str] = []
        self.horizon: Callable[[int], int] = lambda step: 1
        self.is_watched = True
        self.staleness: list[int] = []
        self.extra: dict[str, Any] = {}

    # ---- Epochs ----

    @property
    def is_synchronous(self) -> bool:
        """Returns whether every update waits for all shares of its batch."""
        return self._options.is_synchronous

    @property
    def is_ordered(self) -> bool:
        """Returns whether no gradient can miss an update."""
        return self._options.is_synchronous or self._options.staleness == 0

    @property
    def ticket(self) -> int:
        """The ticket of the next step: how many updates there are."""
        return 0 if self._tickets is None else self._tickets.next

    @property
    def _opened_tickets(self) -> ChiefTickets:
        assert self._tickets is not None, "servers are opened by the first batch"
        return self._tickets

    def begin_epoch(self, epoch: int, first_batch: int, batches: int | None, extra: Any) -> None:
        """Begins an epoch, as soon as its first batch is there."""
        self._epoch = {"epoch": epoch, "first_batch": first_batch, "batches": batches, "extra": extra}
        self._totals, self.staleness = _Totals(), []

    def end_epoch(self, batches: int) -> None:
        """Ends an epoch of so many batches, all of which are applied."""
        if self._tickets is not None and self._epoch is None:
            self.settle()
            self._call.end_epoch(batches)

    def train(self, batch: Batch) -> Outputs:
        """Returns when the next batch's update is applied, whoever has computed it."""
        if self._tickets is None:
            self._open(batch)
        if self._epoch is not None:
            self._begin(**self._epoch)
            self._epoch = None
        self._push_changes()
        tickets = self._opened_tickets
        horizon = self.horizon(tickets.steps)
        # Before what is between two steps, such as a backup, all of them are applied.
        behind = min(self._behind(batch), horizon - 1)
        self._account(tickets.submit(batch, horizon, self._hyper(), behind))
        totals = self._totals
        # No arrays on devices, for which the loop would wait.
        return Outputs(None, None, lambda _: self._shown(totals))

    def settle(self) -> None:
        """Waits until the updates of all steps are applied."""
        if self._tickets is not None:
            self._account(self._tickets.settle())

    def _behind(self, batch: Batch) -> int:
        """Returns how many steps the loop may be ahead of the updates."""
        if self.is_ordered or self.is_watched:
            return 0
        size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(batch))
        return min(WINDOW, _BEHIND_BYTES // max(size, 1))

    def _begin(self, epoch: int, first_batch: int, batches: int | None, extra: Any) -> None:
        assert self._training is not None
        extra = {**extra, "first_ticket": self._training.first_ticket}
        self._opened_tickets.begin_epoch(epoch, first_batch, batches, extra)

    def _hyper(self) -> dict[str, float]:
        """Returns the numbers of the optimizer that callbacks may assign."""
        rate: Any = getattr(self._model.optimizer, "_learning_rate", None)
        return {"learning_rate": float(np.asarray(rate.value))} if hasattr(rate, "path") else {}

    # ---- The servers ----

    def _open(self, batch: Batch) -> None:
        model, options = self._model, self._options
        # ---- Describe: which tables are looked up by rows, a trace of the step has shown ----
        held = HeldModel.of(model, rows_of_plan(model, self._program.plan(batch).rows))
        spec = self._spec_of(held)
        slots = slots_of(model, held, spec.rule)

        self._draws = self._program.plan(batch).draws

        # ---- Open: what servers hold of an earlier training stays there ----
        opened = spec.digest()
        served = options.served
        if served.digest != opened:
            served.make_room()
        initial = initial_values(model, held, slots, served.digest == opened)
        iterations = int(np.asarray(model.optimizer._iterations.value))
        shares = options.shares if options.is_synchronous else 1
        self._training = Training(options.is_synchronous, shares, iterations, seeds_of(model))
        extra = {**self.extra, "training": self._training.to_json()}
        reports = self._call.open(spec, initial, extra, options.staleness)
        first = max(int(report["version"]) for report in reports)
        if self.restore_from is not None:
            first = self._call.restore(self.restore_from).step
        self._training = replace(self._training, first_ticket=first)
        served.digest = opened
        client = TicketClient(self._call, model, self._program, held, self._training)
        self._tickets = ChiefTickets(self._call, client, not options.is_synchronous, _AHEAD)

        # ---- Defer: from here on variables are read from the servers ----
        names = [*held.trainable, *held.non_trainable]
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        for name, variable in [*zip(names, variables, strict=True), *slots.items()]:
            if name is None:
                continue
            self._before.append((variable, held_value(variable)))
            if isinstance(variable, Table):
                mark = variable.serve(partial(self._call.read, name), partial(rows_of, self._call, name))
                served.tables = [*(t for t in served.tables if t is not variable), variable]
            else:
                is_slot = name in slots
                mark = defer(variable, partial(self._call.read if is_slot else self._read_dense, name))
            self._marks[name] = variable, mark
        if self.cut_directory is not None and self.restore_from is None:
            # What a server that dies before the first backup goes back to.
            self._tickets.first = self._tickets.next = first
            self.restore_from = self.cut()

    def _spec_of(self, held: HeldModel) -> JobSpec:
        """Returns what servers need to know; the same as before for the same variables and optimizer."""
        # Programs that are exported again need not have the same bytes, and another spec would begin with new tables.
        known, optimizer = self._owned.spec, self._model.optimizer
        if known is None or known[0] is not optimizer or known[1] != held:
            known = self._owned.spec = optimizer, held, spec_of(self._model, held, self._options)
        return known[2]

    # ---- Cuts ----

    def cut(self) -> str | None:
        """Has servers write their shards, between two steps; returns the directory."""
        if self.cut_directory is None or self._tickets is None:
            return None
        path = os.path.join(self.cut_directory, f"{CUT}{self.ticket}")
        shutil.rmtree(path, ignore_errors=True)
        self._call.cut(path, self.ticket)
        # The one before stays: a backup that is being written is not the newest yet.
        self._cuts = [*self._cuts[-_KEPT + 1 :], path]
        for old in glob.glob(os.path.join(glob.escape(self.cut_directory), f"{CUT}*")):
            if old not in self._cuts and old != self.restore_from:
                shutil.rmtree(old, ignore_errors=True)
        return path

    def give_up(self) -> None:
        """Has variables hold what they held before servers took them, after these have lost it."""
        self._options.served.digest, self._options.served.tables = "", []
        for variable, value in self._before:
            variable._value = value

    def remove_cuts(self) -> None:
        """Removes all cuts, after a training that has ended well."""
        for path in (
            [] if self.cut_directory is None else glob.glob(os.path.join(glob.escape(self.cut_directory), f"{CUT}*"))
        ):
            shutil.rmtree(path, ignore_errors=True)

    # ---- Values ----

    def _read_dense(self, name: str) -> Array:
        """Reads a variable with all others that travel whole, once for each step."""
        if self._snapshot is None or self._snapshot[0] != self.ticket:
            reply = self._call.exchange(None, Pull(self._call.generation, {}, -1, None))
            self._snapshot = self.ticket, {name: np.array(v) for name, v in (reply.dense or {}).items()}
        return self._snapshot[1][name]

    def _push_changes(self) -> None:
        """Sends what callbacks have assigned to the servers."""
        for name, (variable, mark) in self._marks.items():
            value = held_value(variable)
            if value is not mark:
                self._call.assign(name, np.asarray(value))
                defer_again(variable, mark)
                self._snapshot = None

    def materialize(self) -> None:
        """Fetches all variables but tables, which stay on the servers."""
        for name, (variable, mark) in self._marks.items():
            if not isinstance(variable, Table) and held_value(variable) is mark:
                variable.assign(np.asarray(mark.read()))
            elif isinstance(variable, Table) and held_value(variable) is not mark:
                self._call.assign(name, np.asarray(variable.value))
                defer_again(variable, mark)
        self._marks.clear()

    # ---- Metrics, logs and random generators ----

    def _account(self, applied: Sequence[Applied]) -> None:
        """Adds up what tasks have reported of steps."""
        if applied:
            self._snapshot = None
        totals = self._totals
        if totals.metrics is None:
            # Not reset: an epoch may go on in the middle, from a backup.
            totals.metrics = [np.asarray(v) for v in self._model.metrics_variables]
        for ticket, batch, reports in applied:
            logs: dict[str, Any] = {}
            shared = [r for r in reports if any(k.startswith(METRIC) for k in r) or len(r) > 1]
            for report in reports:
                self._opened_tickets.check_data(ticket, batch, report)
                self.staleness.append(int(report[STALENESS]))
                totals.metrics = [
                    t + report[k] if (k := f"{METRIC}{i}") in report else t for i, t in enumerate(totals.metrics)
                ]
                for key, value in report.items():
                    if key.startswith(LOG):
                        name = key.removeprefix(LOG)
                        logs[name] = logs.get(name, 0) + np.asarray(value) / len(shared)
            totals.logs = logs

    def _shown(self, totals: _Totals) -> dict[str, Any]:
        """Returns logs of the epoch up to the last step that is applied: of metrics, or what its step has logged."""
        if totals.logs:
            return totals.logs
        mapping = list(zip(self._model.metrics_variables, totals.metrics or (), strict=False))
        with backend.StatelessScope(state_mapping=mapping):
            return self._model.get_metrics_result()

    def sync(self) -> None:
        """Assigns metrics, random states and the number of updates to the model's variables."""
        model = self._model
        for variable, value in zip(model.metrics_variables, self._totals.metrics or (), strict=False):
            variable.assign(value)
        training = self._training
        if training is None or self._tickets is None:
            return
        model.optimizer._iterations.assign(training.iterations + self.ticket - training.first_ticket)
        draws = self._draws
        states = seeds_for(training.seeds, draws, self.ticket - training.first_ticket, 0, True)
        for variable, state in zip([v for v in model.non_trainable_variables if is_seed(v)], states, strict=True):
            variable.assign(state)

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """Has callbacks that touch the model find its variables up to date."""
        attributes = vars(self._model)
        before = attributes.get("jax_state_sync")
        attributes["jax_state_sync"] = self.sync
        try:
            yield
            self.settle()
        except Preempted:
            # What is saved next is the state after all steps of the loop.
            self.settle()
            raise
        finally:
            if before is None:
                del attributes["jax_state_sync"]
            else:
                attributes["jax_state_sync"] = before
            self.sync()


def rows_of(call: Call, name: str, ids: np.ndarray) -> Array:
    """Returns rows of a table that servers hold, by their ids."""
    return call.exchange(None, Pull(call.generation, {name: ids}, _NEWER_THAN_ANY, None)).rows[name]
