"""A task's way through one ticket of a model_fn's training: pull variables, compute gradients, push them, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.samples import Sample
from lockstep._engine.keras.servers.lookups import Needed
from lockstep._engine.servers.batch_shares import seeds_for
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.requests import JobSpec, Push
from lockstep._engine.servers.ticket_exchange import CHECKSUM, TicketExchange
from lockstep._engine.servers.tickets import Lease
from lockstep._engine.step.aggregation import Shards
from lockstep._types import PyTree
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Batches, Data
from lockstep.estimator._model_fn.steps import shards_of
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.estimator._servers.closing import ClosingStep
from lockstep.estimator._servers.step import TicketStep

OUTPUT = "output/"


@dataclass(frozen=True)
class Beginning:
    """The facts of one training that all tasks have alike; its tickets count from 0, as servers begin anew.

    Attributes:
        global_step: The global step before the first ticket.
        increment: By how much a ticket moves it.
        seeds: The states of random generators before the first ticket, by key.
    """

    global_step: int
    increment: int
    seeds: Mapping[str, np.ndarray]

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON."""
        seeds = [[key, str(s.dtype), s.tolist()] for key, s in self.seeds.items()]
        return {**vars(self), "seeds": seeds}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Beginning:
        """Returns what `to_json` has described."""
        seeds = {key: np.asarray(values, dtype) for key, dtype, values in facts["seeds"]}
        return cls(int(facts["global_step"]), int(facts["increment"]), seeds)

    def step_of(self, ticket: int) -> int:
        """Returns the global step before a ticket."""
        return self.global_step + ticket * self.increment

    def seeds_of(self, ticket: int, draws: Mapping[str, np.ndarray], share: int = 0) -> dict[str, np.ndarray]:
        """Returns the states of random generators before a ticket, for one of its batches."""
        keys = list(self.seeds)
        moves = [draws.get(key, np.zeros_like(self.seeds[key])) for key in keys]
        states = seeds_for([self.seeds[key] for key in keys], moves, ticket, share, False)
        return dict(zip(keys, states, strict=True))


class TicketClient:
    """Computes tickets of one training.

    Args:
        call: The call.
        compiled: The model_fn.
        spec: What servers hold, and how updates follow each other.
        around: Called with the global step before a ticket's step; returns what is called with its outputs after it.

    Attributes:
        step: The step.
        compares_data: Whether reports have a checksum of the batch, which the chief compares with its own.
    """

    def __init__(
        self,
        call: Call,
        compiled: CompiledModelFn,
        spec: JobSpec,
        around: Callable[[int], Callable[[PyTree], None]] | None = None,
    ) -> None:
        self._exchange = TicketExchange(call, spec.mode == "sync")
        self.step = TicketStep(compiled, spec)
        self._closing = ClosingStep(compiled, self.step) if spec.closes else None
        self._shares = spec.replicas
        self._deltas = {v.name for v in spec.layout.variables if v.kind == "delta"}
        self._beginning: Beginning | None = None
        self._around = around
        self.compares_data = False

    def begin_epoch(self, facts: Mapping[str, Any]) -> None:
        """Begins to compute, from the chief's "beginning" on: after servers were lost that of its last checkpoint."""
        self._beginning = Beginning.from_json(facts["beginning"])

    def compute(self, lease: Lease, batch: Data | Batches) -> None:
        """Computes a ticket's share; what servers say to its push is received by the next pull, or `flush`.

        The lease goes back if others have computed it meanwhile.

        Raises:
            Superseded: If the servers have begun anew meanwhile: the lease is void.
        """
        shards = shards_of(batch, self._shares)
        if lease.share == self._shares:
            self._close(lease, shards)
        elif lease.share < len(shards.data):
            self._compute(lease, shards, batch)
        else:
            # Fewer rows than shares: there is nothing for this one.
            self._exchange.push(lease, Push(lease.generation, lease.ticket, lease.share, weight=0.0), {})

    def _compute(self, lease: Lease, shards: Shards, batch: Data | Batches) -> None:
        part, step = shards.data[lease.share], self.step
        pulled = self._pull(lease, [part])
        if pulled is None:
            return
        after = self._around(self._begun.step_of(lease.ticket)) if self._around is not None else None
        results = step(part, pulled.values, pulled.needed)
        report = {f"{OUTPUT}{i}": np.asarray(value) for i, value in enumerate(results["outputs"])}
        if self.compares_data:
            report[CHECKSUM] = np.asarray(Sample(batch, lease.batch).checksum, np.int64)
        weight, of_loss = (s.weights[lease.share] for s in (shards, shards.of_loss(step.reduction)))
        gradients = {
            key: _weigh(value, of_loss if step.is_of_loss(key) else weight)
            for key, value in results["gradients"].items()
        }
        changes = {key: self._weigh_change(key, v, lease, weight) for key, v in results["changes"].items()}
        self._exchange.push(lease, self._push_of(lease, pulled, gradients, changes, results["hyper"]), report)
        if after is not None:
            after(step.outputs_of(part, results["outputs"]))

    def _close(self, lease: Lease, shards: Shards) -> None:
        """Makes of the sum of all shares what is applied."""
        assert self._closing is not None, "only a round that is closed has a share for that"
        pulled = self._pull(lease, shards.data)
        if pulled is None:
            return
        sums = self._exchange.pull_sums(lease, {key: each.ids for key, each in pulled.needed.items()})
        if sums is None:
            return
        assert sums.dense is not None
        gradients = {key: value for key, value in sums.dense.items() if key not in self._deltas}
        gradients |= {key: each.window(sums.rows[key]) for key, each in pulled.needed.items()}
        results = self._closing(shards.data, shards.weights, pulled.values, pulled.needed, gradients)
        gradients |= results["gradients"]
        changes = {key: sums.dense[key] for key in self._deltas} | results["changes"]
        report = {f"{OUTPUT}{i}": np.asarray(value) for i, value in results["outputs"].items()}
        self._exchange.push(lease, self._push_of(lease, pulled, gradients, changes, results["hyper"]), report)

    @property
    def _begun(self) -> Beginning:
        assert self._beginning is not None, "tickets are leased in an epoch"
        return self._beginning

    def _pull(self, lease: Lease, shares: Sequence[Data]) -> _Pulled | None:
        """Pulls what shares of a ticket need; `None` if others have computed the lease meanwhile.

        Random numbers are those of the lease's share; where it closes a ticket, of the first.
        """
        step, beginning = self.step, self._begun
        if any(map(step.ids_need_state, shares)) and self._exchange.pull(lease, {}) is None:
            return None
        share = lease.share % self._shares
        known = {
            **beginning.seeds_of(lease.ticket, step.draws(shares[0]), share),
            GLOBAL_STEP: np.asarray(beginning.step_of(lease.ticket)),
        }
        needed = step.needed(shares, {**self._exchange.dense, **known})
        reply = self._exchange.pull(lease, {key: each.ids for key, each in needed.items()})
        if reply is None:
            return None
        windows = {key: each.window(reply.rows[key]) for key, each in needed.items()}
        return _Pulled({**self._exchange.dense, **known, **windows}, needed)

    def _push_of(
        self,
        lease: Lease,
        pulled: _Pulled,
        gradients: Mapping[str, np.ndarray],
        changes: Mapping[str, np.ndarray],
        hyper: Sequence[Any],
    ) -> Push:
        return Push(
            generation=lease.generation,
            ticket=lease.ticket,
            share=lease.share,
            hyper={f"hyper_{i}": float(value) for i, value in enumerate(hyper)},
            rows={key: (each.ids, gradients[key][: len(each.ids)]) for key, each in pulled.needed.items()},
            dense={key: value for key, value in gradients.items() if key not in pulled.needed},
            delta=changes,
            based_on=self._exchange.version,
        )

    def _weigh_change(self, key: str, change: np.ndarray, lease: Lease, weight: float) -> np.ndarray:
        """Returns what a share adds to a variable that the model_fn assigns; as `Shards.combine` combines replicas."""
        aggregation = self.step.entries[key].aggregation
        if aggregation == "sum":
            return change
        if aggregation == "only_first_replica" or not jax.numpy.issubdtype(change.dtype, np.inexact):
            return change if lease.share == 0 else np.zeros_like(change)
        return _weigh(change, weight)

    def flush(self) -> None:
        """Pushes what is computed, and reports it."""
        self._exchange.flush()

    def drop(self) -> None:
        """Forgets what was computed for a state that servers have left."""
        self._exchange.drop()


@dataclass(frozen=True)
class _Pulled:
    """Holds what a step starts from.

    Attributes:
        values: Of variables, of tables windows, by key.
        needed: The rows in the windows.
    """

    values: Mapping[str, Any]
    needed: Mapping[str, Needed]


def _weigh(value: np.ndarray, weight: float) -> np.ndarray:
    """Returns what a share adds to a sum in which it counts so much."""
    return value if weight == 1 else value * np.asarray(weight, value.dtype)


def outputs_in(report: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """Returns the leaves of the outputs in a report, by their numbers."""
    return {int(name.removeprefix(OUTPUT)): value for name, value in report.items() if name.startswith(OUTPUT)}
