"""A task's way through one ticket: pull what a batch needs, compute its gradients, push them, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.samples import Sample
from lockstep._engine.keras.servers.held import HeldModel
from lockstep._engine.keras.servers.lookups import Needed
from lockstep._engine.keras.servers.ticket_program import Inputs, Plan, TicketProgram
from lockstep._engine.runtime.progress import is_done
from lockstep._engine.servers.batch_shares import seeds_for, share_of
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.requests import Push, Reply
from lockstep._engine.servers.ticket_exchange import CHECKSUM, TicketExchange
from lockstep._engine.servers.tickets import Lease
from lockstep._types import Array, Batch, PyTree

Report = dict[str, np.ndarray]
METRIC, LOG = "metric/", "log/"


@dataclass(frozen=True)
class Training:
    """The facts of one training that all tasks have alike.

    Attributes:
        is_synchronous: Whether every update waits for all shares of its batch.
        shares: Into how many shares a batch is divided.
        iterations: How many steps the optimizer had made before.
        seeds: The states of the model's random generators before the first step.
        first_ticket: The ticket of the first step, which servers number.
    """

    is_synchronous: bool
    shares: int
    iterations: int
    seeds: Sequence[np.ndarray]
    first_ticket: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON."""
        seeds = [[str(s.dtype), s.tolist()] for s in self.seeds]
        return {**vars(self), "seeds": seeds}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Training:
        """Returns what `to_json` has described."""
        seeds = [np.asarray(values, dtype) for dtype, values in facts["seeds"]]
        return cls(bool(facts["is_synchronous"]), int(facts["shares"]), int(facts["iterations"]), seeds)


@dataclass(frozen=True)
class _Running:
    """Holds a share whose step may still be computed.

    Attributes:
        lease: Its lease.
        batch: The whole batch.
        weight: By how much the share counts.
        needed: The rows that it looks up, by the places of tables.
        results: What the step returns, as arrays of the devices.
    """

    lease: Lease
    batch: Batch
    weight: float
    needed: Mapping[int, Needed]
    results: PyTree


class TicketClient:
    """Computes tickets of one call.

    Gradients are pushed as soon as they are computed: servers apply them while the next lease, its batch and the ids
    of its rows are made ready. Where XLA computes beside this thread it does so meanwhile, and gradients are pushed
    when the next ticket has come as far as its pull, or by `flush`.

    Args:
        call: The call.
        model: The model.
        program: Its step.
        held: Its variables on the servers.
        training: The facts of the training.

    Attributes:
        training: The facts of the training, whose first ticket is known when its first epoch begins.
        compares_data: Whether reports have a checksum of the batch, which the chief compares with its own.
    """

    def __init__(self, call: Call, model: Any, program: TicketProgram, held: HeldModel, training: Training) -> None:
        self._call = call
        self._model = model
        self._program = program
        self._held = held
        self.training = training
        self._kinds = {v.name: v.kind for v in held.variables}
        self._exchange = TicketExchange(call, training.is_synchronous)
        self._metrics = reset_values(model)
        slots = model.optimizer.variables
        self._numbers = {i: (name, slots[i].dtype) for i, name in program.optimizer_numbers().items()}
        self.compares_data = False
        self._running: _Running | None = None
        self._logs_are_metrics: bool | None = None

    def compute(self, lease: Lease, batch: Batch) -> None:
        """Begins to compute a ticket's share; what servers say to its push is received by the next pull, or `flush`.

        In synchronous training it returns after the push. The lease goes back if other workers have computed the share
        meanwhile.

        Raises:
            Superseded: If the servers have gone back to a cut meanwhile: the lease is void.
        """
        part, weight = share_of(batch, lease.share, lease.shares)
        if part is None:
            self.flush()
            self._exchange.push(lease, self._push_of(lease, 0.0, {}, {}, {}), {})
            return
        program, plan = self._program, self._program.plan(part)
        if plan.ids_need_state:
            self._finish()
            if self._exchange.pull(lease, {}) is None:
                return
        needed = program.needed(plan, part, self._inputs(lease, plan, {}))
        self._finish()
        reply = self._exchange.pull(lease, self._rows_to_pull(needed))
        if reply is None:
            return
        inputs = self._inputs(lease, plan, self._windows(needed, reply))
        self._running = running = _Running(lease, batch, weight, needed, program(plan, part, needed, inputs))
        if self.training.is_synchronous or all(map(is_done, jax.tree.leaves(running.results))):
            self._finish()

    def begin_epoch(self, facts: Mapping[str, Any]) -> None:
        """Begins an epoch, whose random numbers are those of steps after its "first_ticket"."""
        self.training = replace(self.training, first_ticket=facts["first_ticket"])

    def flush(self) -> None:
        """Pushes what is computed, and reports it."""
        self._finish()
        self._exchange.flush()

    def drop(self) -> None:
        """Forgets what was computed for a state that servers have left."""
        self._running = None
        self._exchange.drop()

    def _finish(self) -> None:
        """Waits for the step that is running, and has its gradients be what is pushed next."""
        if (running := self._running) is None:
            return
        self._running = None
        results = self._program.on_host(running.results)
        report = self._report(results)
        if self.compares_data:
            report[CHECKSUM] = np.asarray(Sample(running.batch, running.lease.batch).checksum, np.int64)
        self._exchange.push(running.lease, self._gradients(running, results), report)

    # ---- What travels ----

    def _rows_to_pull(self, needed: Mapping[int, Needed]) -> dict[str, np.ndarray]:
        names = self._held.trainable
        return {names[i]: each.ids for i, each in needed.items() if self._kinds[names[i]] == "rows"}

    def _windows(self, needed: Mapping[int, Needed], reply: Reply) -> dict[int, Array]:
        found: dict[int, Array] = {}
        for place, each in needed.items():
            name = self._held.trainable[place]
            rows = reply.rows[name] if self._kinds[name] == "rows" else self._exchange.dense[name][each.ids]
            found[place] = each.window(rows)
        return found

    def _inputs(self, lease: Lease, plan: Plan, windows: Mapping[int, Array]) -> Inputs:
        training, dense = self.training, self._exchange.dense
        step = lease.ticket - training.first_ticket
        trainable: list[Any] = [
            windows[i] if i in windows else dense.get(name, 0) for i, name in enumerate(self._held.trainable)
        ]
        for place in self._held.rows:
            if place not in windows and windows:
                trainable[place] = self._call.read(self._held.trainable[place])
        seeds = iter(seeds_for(training.seeds, plan.draws, step, lease.share, training.shares == 1))
        others = [next(seeds) if name is None else dense.get(name, 0) for name in self._held.non_trainable]
        numbers = {"iterations": training.iterations + step, "learning_rate": lease.hyper.get("learning_rate", 0.0)}
        optimizer = {i: np.asarray(numbers[name], dtype) for i, (name, dtype) in self._numbers.items()}
        return Inputs(trainable, others, optimizer, self._metrics)

    def _gradients(self, running: _Running, results: PyTree) -> Push:
        rows: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        dense: dict[str, np.ndarray] = {}
        for place, gradient in results["gradients"].items():
            name, each = self._held.trainable[place], running.needed.get(place)
            if self._kinds[name] == "rows":
                ids = np.arange(len(gradient)) if each is None else each.ids
                rows[name] = ids, gradient[: len(ids)]
            elif each is None:
                dense[name] = gradient
            else:
                whole = np.zeros(self._exchange.dense[name].shape, gradient.dtype)
                whole[each.ids] = gradient[: len(each.ids)]
                dense[name] = whole
        names = self._held.non_trainable
        delta = {name: change for i, change in results["changes"].items() if (name := names[i]) is not None}
        return self._push_of(running.lease, running.weight, rows, dense, delta)

    def _push_of(self, lease: Lease, weight: float, rows: Any, dense: Any, delta: Any) -> Push:
        return Push(
            generation=lease.generation,
            ticket=lease.ticket,
            share=lease.share,
            weight=weight,
            hyper=dict(lease.hyper),
            rows=rows,
            dense=dense,
            delta=delta,
            based_on=self._exchange.version,
        )

    def _report(self, results: PyTree) -> Report:
        report = {f"{METRIC}{i}": np.asarray(value) for i, value in enumerate(results["metrics"])}
        logs = results["logs"]
        if self._logs_are_metrics is None:
            self._logs_are_metrics = set(logs) == set(self._model.get_metrics_result())
        if not self._logs_are_metrics:
            report |= {f"{LOG}{name}": np.asarray(value) for name, value in logs.items()}
        return report


def reset_values(model: Any) -> list[np.ndarray]:
    """Returns the values of a model's metrics when nothing is counted yet; those that they have stay."""
    now = [np.asarray(v) for v in model.metrics_variables]
    model.reset_metrics()
    reset = [np.asarray(v) for v in model.metrics_variables]
    for variable, value in zip(model.metrics_variables, now, strict=True):
        variable.assign(value)
    return reset
