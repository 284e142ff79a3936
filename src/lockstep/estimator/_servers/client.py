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
from lockstep._engine.servers.requests import Push
from lockstep._engine.servers.ticket_exchange import CHECKSUM, TicketExchange
from lockstep._engine.servers.tickets import Lease
from lockstep._types import PyTree
from lockstep.estimator._model_fn.function import Batches, Data, parts_of
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
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
        step: The step.
        is_synchronous: Whether every update waits for the one before.
        around: Called with the global step before a ticket's step; returns what is called with its outputs after it.

    Attributes:
        compares_data: Whether reports have a checksum of the batch, which the chief compares with its own.
    """

    def __init__(
        self,
        call: Call,
        step: TicketStep,
        is_synchronous: bool,
        around: Callable[[int], Callable[[PyTree], None]] | None = None,
    ) -> None:
        self._exchange = TicketExchange(call, is_synchronous)
        self._step = step
        self._beginning: Beginning | None = None
        self._around = around
        self.compares_data = False

    def begin_epoch(self, facts: Mapping[str, Any]) -> None:
        """Begins to compute, from the chief's "beginning" on: after servers were lost that of its last checkpoint."""
        self._beginning = Beginning.from_json(facts["beginning"])

    def compute(self, lease: Lease, batch: Data | Batches) -> None:
        """Computes a ticket; its push waits for the next pull, or for `flush`.

        The lease goes back if others have computed it meanwhile.

        Raises:
            Superseded: If the servers have begun anew meanwhile: the lease is void.
        """
        assert self._beginning is not None, "tickets are leased in an epoch"
        part, beginning, step = parts_of(batch)[lease.share], self._beginning, self._step
        if step.ids_need_state(part) and self._exchange.pull(lease, {}) is None:
            return
        before = beginning.step_of(lease.ticket)
        known = {
            **beginning.seeds_of(lease.ticket, step.draws(part), lease.share),
            GLOBAL_STEP: np.asarray(before),
        }
        needed = step.needed(part, {**self._exchange.dense, **known})
        reply = self._exchange.pull(lease, {key: each.ids for key, each in needed.items()})
        if reply is None:
            return
        after = self._around(before) if self._around is not None else None
        windows = {key: each.window(reply.rows[key]) for key, each in needed.items()}
        results = step(part, {**self._exchange.dense, **known, **windows}, needed)
        report = {f"{OUTPUT}{i}": np.asarray(value) for i, value in enumerate(results["outputs"])}
        if self.compares_data:
            report[CHECKSUM] = np.asarray(Sample(batch, lease.batch).checksum, np.int64)
        self._exchange.push(lease, self._push_of(lease, results, needed), report)
        if after is not None:
            after(step.outputs_of(part, results["outputs"]))

    def _push_of(self, lease: Lease, results: Mapping[str, Any], needed: Mapping[str, Needed]) -> Push:
        gradients = {key: _mean_part(value, lease.shares) for key, value in results["gradients"].items()}
        return Push(
            generation=lease.generation,
            ticket=lease.ticket,
            share=lease.share,
            hyper={f"hyper_{i}": float(value) for i, value in enumerate(results["hyper"])},
            rows={key: (each.ids, gradients[key][: len(each.ids)]) for key, each in needed.items()},
            dense={key: value for key, value in gradients.items() if key not in needed},
            delta={key: self._change_part(key, v, lease) for key, v in results["changes"].items()},
            based_on=self._exchange.version,
        )

    def _change_part(self, key: str, change: np.ndarray, lease: Lease) -> np.ndarray:
        """Returns what a batch adds to a variable that the model_fn assigns; as `Shards.combine` combines replicas."""
        aggregation = self._step.entries[key].aggregation
        if aggregation == "sum":
            return change
        if aggregation == "only_first_replica" or not jax.numpy.issubdtype(change.dtype, np.inexact):
            return change if lease.share == 0 else np.zeros_like(change)
        return _mean_part(change, lease.shares)

    def flush(self) -> None:
        """Pushes what is computed, and reports it."""
        self._exchange.flush()

    def drop(self) -> None:
        """Forgets what was computed for a state that servers have left."""
        self._exchange.drop()


def _mean_part(value: np.ndarray, shares: int) -> np.ndarray:
    """Returns what a batch adds to the mean over so many."""
    return value if shares == 1 else value * np.asarray(1.0 / shares, value.dtype)


def outputs_in(report: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    """Returns the leaves of the outputs in a report."""
    count = sum(name.startswith(OUTPUT) for name in report)
    return [report[f"{OUTPUT}{i}"] for i in range(count)]
