"""Computes a ticket: the rows that a batch needs, then the gradients of a model_fn's own step, and what it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.keras.servers.lookups import Needed, leaks, needed_rows
from lockstep._engine.servers.requests import JobSpec
from lockstep._engine.servers.traced_parts import Part, Traced
from lockstep._engine.step.compiler import Compiler
from lockstep._types import PyTree
from lockstep.errors import UnsupportedError
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Data
from lockstep.estimator._model_fn.lookups import RecordedLookups, Watch, Windows
from lockstep.estimator._model_fn.variables import Entry
from lockstep.estimator._model_fn.watching import watching
from lockstep.estimator._servers.results import NOTHING, Rest, keys_of_losses, rest_of, results_of
from lockstep.estimator._servers.tables import slots_in, with_rows
from lockstep.estimator._servers.update import shapes_of

Windowed = Mapping[str, Needed]


@dataclass
class _Plan:
    """Holds the plan of a step for batches of one signature, as tracing it with whole variables has shown.

    Attributes:
        ids: The program of the ids that a batch looks up, by the key of the table; `None` without tables.
        draws: By how much a step moves the states of random generators, by key.
        outputs: The structure of the outputs.
        programs: The compiled step, by the sizes of the windows.
    """

    ids: Part | None
    draws: Mapping[str, np.ndarray]
    outputs: Any
    programs: dict[Any, Part] = field(default_factory=dict[Any, Part])


class TicketStep:
    """The training step of a model_fn up to its gradients, for one ticket.

    Args:
        compiled: The model_fn.
        spec: What servers hold and send.

    Attributes:
        entries: The variables of the model_fn.
        tables: The keys of those that are tables.
        reduction: The reduction of the loss over shares.
    """

    def __init__(self, compiled: CompiledModelFn, spec: JobSpec) -> None:
        self.entries = compiled.variables.entries
        self.reduction = compiled.loss_reduction
        self._model_fn = compiled
        self._parts = compiled.training_parts()
        self._compiler = Compiler(compiled.replicas)
        self._closes = spec.closes
        self._of_losses = keys_of_losses(compiled.first_call)
        self._rest: Rest | None = None
        self.tables = [v.name for v in spec.layout.variables if v.kind == "rows"]
        self._slots = slots_in(spec.rule, self.tables, self.entries)
        held = [v.name for v in spec.layout.variables]
        self._known = {*held, *(k for k, e in self.entries.items() if e.is_seed), "global_step"}
        self._by_signature: dict[Any, _Plan] = {}

    def draws(self, data: Data) -> Mapping[str, np.ndarray]:
        """Returns by how much a step moves the states of random generators, by key."""
        return self._plan(data).draws

    def outputs_of(self, data: Data, leaves: Sequence[Any]) -> PyTree:
        """Returns the outputs of a step from its leaves."""
        return jax.tree.unflatten(self._plan(data).outputs, list(leaves))

    def ids_need_state(self, data: Data) -> bool:
        """Returns whether the ids that a batch looks up are computed from variables, too."""
        ids = self._plan(data).ids
        return ids is not None and any(ids.uses()[0].values())

    def needed(self, shares: Sequence[Data], values: Mapping[str, Any]) -> dict[str, Needed]:
        """Returns the rows that shares of a batch need, by the keys of tables; lookups of one share after another."""
        state = {key: values.get(key, 0) for key in self.entries}
        found: dict[str, list[Any]] = {key: [] for key in self.tables}
        for share in shares:
            ids = self._plan(share).ids
            for key, own in {} if ids is None else jax.device_get(ids(state, share)).items():
                found[key] += own
        return {key: needed_rows(self.entries[key].shape[0], lookups) for key, lookups in found.items()}

    def rest(self, data: Data) -> Rest:
        """Returns what of the step waits for the gradients of all shares of a batch, where one more closes it."""
        if self._rest is None:
            self._rest = rest_of(self._model_fn, data) if self._closes else NOTHING
        return self._rest

    def is_of_loss(self, key: str) -> bool:
        """Returns whether what a share pushes for a variable is the gradient of its loss."""
        return key in self._of_losses or (self._rest is not None and key in self._rest.keys)

    def __call__(self, data: Data, values: Mapping[str, Any], needed: Windowed) -> dict[str, Any]:
        """Runs the step.

        Args:
            data: The batch.
            values: The variables that servers send, of tables windows, the random generators' states, and the global
                step, by key.
            needed: The rows in the windows.

        Returns:
            Arrays of the host: "gradients" (of tables those of windows) and "changes" by key, "hyper" in order, and the
            leaves of the "outputs".
        """
        part = self._program(data, needed)
        positions = {key: list(each.positions) for key, each in needed.items()}
        return jax.device_get(part({key: values.get(key, 0) for key in self.entries}, data, positions))

    # ---- Traces ----

    def _plan(self, data: Data) -> _Plan:
        key = signature_of(data)
        if key not in self._by_signature:
            self._by_signature[key] = self._make_plan(data)
        return self._by_signature[key]

    def _make_plan(self, data: Data) -> _Plan:
        structures: list[Any] = []
        seen = RecordedLookups()

        def step(state: Any, data: Data) -> dict[str, Any]:
            results = self._results(state, data, seen, structures)
            self._check_tables(seen)
            return {**results, "ids": {key: seen.ids.get(key, []) for key in self.tables}}

        state = shapes_of(self.entries)
        try:
            # Found out before: its own traces must not come within another one.
            self.rest(data)
            traced = Traced.of(step, state, data)
        except jax.errors.UnexpectedTracerError as error:
            if not self.tables or not leaks(error):
                raise
            raise UnsupportedError(
                "The rows of a table that a batch needs must be known before the step. Received: a model_fn that looks "
                f"up {self.tables[0]!r} in a loop or a condition that JAX compiles, or by ids that depend on weights. "
                "Look rows up by ids of the features, outside of loops."
            ) from error
        ids = traced.part(lambda r: r["ids"], self._compiler) if self.tables else None
        if ids is not None and (own := [key for key in self.tables if ids.uses()[0][key]]):
            raise UnsupportedError(
                "The rows that a batch needs must be known before they are there. Received: ids that are computed from "
                f"{own[0]!r} itself. Look rows up by ids of the features."
            )
        return _Plan(ids, self._measure_draws(traced, state, data), structures[0])

    def _program(self, data: Data, needed: Windowed) -> Part:
        """Returns the compiled step for windows of these sizes."""
        plan = self._plan(data)
        key = tuple(sorted((name, each.size) for name, each in needed.items()))
        if key not in plan.programs:
            plan.programs[key] = self._compile(data, needed)
        return plan.programs[key]

    def _compile(self, data: Data, needed: Windowed) -> Part:
        sizes, entries = self.with_windows(needed)

        def step(state: Any, data: Data, positions: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
            return self._results(state, data, Windows(self.tables, sizes, positions), [])

        positions = {name: list(each.positions) for name, each in needed.items()}
        traced = Traced.of(step, shapes_of(entries), data, positions)
        return self.part_of(traced, lambda r: {k: v for k, v in r.items() if k not in ("seeds", "before")})

    def with_windows(self, needed: Windowed) -> tuple[dict[str, int], Mapping[str, Entry]]:
        """Returns the sizes of windows, and variables of which tables are as large as these."""
        sizes = {name: each.size for name, each in needed.items()}
        # Slots are as large as their windows: rules compare shapes where a model_fn makes them.
        sizes |= {slot: sizes[owner] for slot, owner in self._slots.items()}
        return sizes, with_rows(self.entries, sizes)

    def part_of(self, traced: Traced, select: Callable[[PyTree], PyTree]) -> Part:
        """Returns the program of some results of what was traced for a state by key, and more.

        Raises:
            UnsupportedError: If it takes a variable that servers do not send.
        """
        part = traced.part(select, self._compiler)
        uses = part.uses()[0]
        if unknown := [name for name, is_used in uses.items() if is_used and name not in self._known]:
            raise UnsupportedError(
                "The optimizer's state is on the servers, where a step cannot read it. Received: a model_fn that reads "
                f"{unknown[0]!r}. Leave that out, or use MultiWorkerMirroredStrategy."
            )
        return part

    def _results(self, state: Any, data: Data, watch: Watch, structures: list[Any]) -> dict[str, Any]:
        """Traces the step."""
        with watching(watch):
            results, structure = results_of(self._parts, self.entries, state, data)
        structures[:] = [structure]
        return (
            {**results, "gradients": self._gradients_as_pushed(results["gradients"], data)} if self._closes else results
        )

    def _gradients_as_pushed(self, gradients: Mapping[str, Any], data: Data) -> dict[str, Any]:
        """Returns the gradients of a share as the model_fn gets them; zeros for those that it makes itself."""
        assert self._parts.step is not None
        at_sites, rest = self._parts.step.gradients_at_sites, self.rest(data)
        found = {key: v if key in self._of_losses else jnp.zeros_like(v) for key, v in gradients.items()}
        for site, keys in rest.sites.items():
            found |= dict(zip(keys, at_sites[site], strict=True))
        return found

    def _check_tables(self, seen: RecordedLookups) -> None:
        """Refuses a batch in which a table is read otherwise than in the one that servers were opened with."""
        windows = Windows(self.tables, {})
        for key in seen.whole:
            windows.note_read(key)

    def _measure_draws(self, traced: Traced, state: PyTree, data: Data) -> dict[str, np.ndarray]:
        """Returns by how much a step moves random generators, which it does alike each time."""
        part = traced.part(lambda r: {"seeds": r["seeds"], "before": r["before"]}, self._compiler)
        zeros = jax.tree.map(
            lambda a, is_used: np.zeros(np.shape(a), a.dtype) if is_used else a, (state, data), part.uses()
        )
        found = jax.device_get(part(*zeros))
        return {key: np.asarray(found["seeds"][key] - found["before"][key]) for key in found["seeds"]}


def signature_of(data: Data) -> Any:
    """Returns what programs for a batch are known by: the shapes and dtypes of its arrays."""
    leaves, structure = jax.tree.flatten(data)
    return structure, tuple((np.shape(a), str(np.asarray(a).dtype)) for a in leaves)
