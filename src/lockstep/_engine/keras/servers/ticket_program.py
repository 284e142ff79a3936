"""Computes a ticket: the rows that a batch needs, and then the gradients of the model's own step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.keras.replica_step import is_seed
from lockstep._engine.keras.servers import lookups
from lockstep._engine.keras.servers.clipping import clipped_as_applied
from lockstep._engine.keras.servers.held import tables_of
from lockstep._engine.keras.servers.lookups import Needed, needed_rows
from lockstep._engine.keras.servers.tables import Table, demand_small
from lockstep._engine.keras.servers.traces import caught_gradients, only_gradients
from lockstep._engine.servers.traced_parts import Part, Traced, differences
from lockstep._engine.step.compiler import Compiler
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import unpack
from lockstep._types import Batch, PyTree
from lockstep.errors import UnsupportedError

Method = Literal["train_step", "test_step", "predict_step"]
_GROUPS = {"train_step": (0, 1, 2, 3), "test_step": (0, 1, 3), "predict_step": (0, 1)}


@dataclass
class Plan:
    """Describes what a step does with batches of one signature, as tracing it with whole tables has shown.

    Attributes:
        ids: The program of the ids that a batch looks up, by the place of the table.
        rows: The places of the tables that are looked up by rows.
        draws: By how much a step moves the states of random generators.
        ids_need_state: Whether ids are computed from variables, too.
        programs: The compiled step, by the sizes of the windows.
    """

    ids: Part
    rows: frozenset[int]
    draws: list[np.ndarray]
    ids_need_state: bool
    programs: dict[Any, _Compiled] = field(default_factory=dict[Any, "_Compiled"])


@dataclass(frozen=True)
class _Compiled:
    """A compiled step.

    Attributes:
        part: The program.
        changed: The places of the non-trainable variables that it changes.
    """

    part: Part
    changed: frozenset[int]


@dataclass(frozen=True)
class Inputs:
    """The values that a step starts from.

    Attributes:
        trainable: Weights by place; of tables that are looked up by rows their windows.
        non_trainable: By place; of random generators their states.
        optimizer: Numbers of the optimizer by place: how many steps it has made, and what callbacks assign.
        metrics: The metrics' variables.
    """

    trainable: Sequence[Any]
    non_trainable: Sequence[Any]
    optimizer: Mapping[int, Any]
    metrics: Sequence[Any]


class TicketProgram:
    """A model's step for tickets.

    Args:
        model: Built, with an optimizer that is built if it is trained.
        replicas: The devices of this task.
        method: The model's step.
        shares: Into how many shares a batch is divided, of which one is computed at a time.
    """

    def __init__(self, model: Any, replicas: Replicas, method: Method, shares: int = 1) -> None:
        self._model = model
        self._replicas = replicas
        self._method: Method = method
        self._shares = shares
        self._compiler = Compiler(replicas)
        self._tables = tables_of(model)
        self._plans: dict[Any, Plan] = {}
        self._slots = len(model.optimizer.variables) if method == "train_step" else 0

    # ---- What a batch needs ----

    def plan(self, batch: Batch) -> Plan:
        """Returns what the step does with batches of these shapes.

        Raises:
            UnsupportedError: If it uses a table otherwise than by rows, and that table is large.
        """
        key = _signature(batch)
        if key not in self._plans:
            self._plans[key] = self._make_plan(batch)
        return self._plans[key]

    def needed(self, plan: Plan, batch: Batch, inputs: Inputs) -> dict[int, Needed]:
        """Returns the rows that a batch needs, by the places of tables."""
        if not plan.rows:
            return {}
        found = plan.ids.of_leaves([*self._state(inputs), *jax.tree.leaves(batch)])
        return {i: needed_rows(self._tables[i].shape[0], list(map(np.asarray, found.get(i, ())))) for i in plan.rows}

    def _make_plan(self, batch: Batch) -> Plan:
        tables, places = list(self._tables.values()), list(self._tables)
        state = self._shapes()

        def step(state: Any, batch: Any) -> PyTree:
            with lookups.recording_lookups(tables) as seen:
                after = self._step(state, batch)[1]
            self._note_whole({places[n] for n in seen.whole}, seen_rows := {places[n]: v for n, v in seen.ids.items()})
            return {"ids": seen_rows, "seeds": self._seeds(after[1]), "before": self._seeds(state[1])}

        self._whole: set[int] = set()
        try:
            traced = Traced.of(step, state, batch)
        except jax.errors.UnexpectedTracerError as error:
            if not tables:
                raise
            return self._plan_without_rows(batch, error)
        rows = frozenset(self._tables) - self._whole
        ids = traced.part(lambda r: {i: found for i, found in r["ids"].items() if i in rows}, self._compiler)
        used = ids.uses()[0][0]
        if dependent := [self._tables[i].path for i in rows if used[i]]:
            raise UnsupportedError(
                "The rows that a batch needs must be known before they are there. Received: ids that are computed "
                f"from the rows of {dependent[0]!r} itself. Look rows up by ids of the input."
            )
        needs_state = any(jax.tree.leaves(ids.uses()[0]))
        return Plan(ids, rows, self._measure_draws(traced, state, batch), needs_state)

    def _plan_without_rows(self, batch: Batch, error: Exception) -> Plan:
        """Returns the plan of a step that looks rows up inside of a loop: it has whole tables, if they are small."""
        for table in self._tables.values():
            try:
                demand_small(table.path, table.shape, table.dtype, "a lookup inside of a loop or a recomputed block")
            except UnsupportedError as refused:
                raise refused from error
        self._tables = {}
        return self._make_plan(batch)

    def _note_whole(self, whole: set[int], looked_up: Mapping[int, Any]) -> None:
        for place in whole:
            table = self._tables[place]
            demand_small(table.path, table.shape, table.dtype, "a step that reads it otherwise than the layer's call")
        # A table that no step looks up has no rows to send.
        self._whole = whole | {place for place in self._tables if place not in looked_up and self._is_small(place)}

    def _is_small(self, place: int) -> bool:
        table = self._tables[place]
        try:
            demand_small(table.path, table.shape, table.dtype, "")
        except UnsupportedError:
            return False
        return True

    def _measure_draws(self, traced: Traced, state: Any, batch: Any) -> list[np.ndarray]:
        """Returns by how much a step moves the states of random generators, which it does alike each time."""
        part = traced.part(lambda r: {"seeds": r["seeds"], "before": r["before"]}, self._compiler)
        if not part.used:
            found = part()
        else:
            zeros = jax.tree.map(
                lambda a, is_used: np.zeros(a.shape, a.dtype) if is_used else a, (state, batch), part.uses()
            )
            found = part(*zeros)
        found = jax.device_get(found)
        return [np.asarray(after - before) for after, before in zip(found["seeds"], found["before"], strict=True)]

    # ---- The step ----

    def __call__(self, plan: Plan, batch: Batch, needed: Mapping[int, Needed], inputs: Inputs) -> PyTree:
        """Runs the step on a batch.

        Returns:
            A dict: for a step of training "gradients" by place (`None` where there is none), "changes" of
            non-trainable variables by place; and "metrics" (what it has added to them), "logs" or "outputs".
        """
        compiled = self._compile(plan, batch, needed)
        positions = [rows for i in sorted(needed) for rows in needed[i].positions]
        if self._replicas.count > 1:
            batch = self._placed(batch)
        return compiled.part.of_leaves([*self._state(inputs), *jax.tree.leaves(batch), *positions])

    def on_host(self, results: PyTree) -> PyTree:
        """Returns results of a step as arrays of the host."""
        # jax.device_get costs twice as much, which copies from a device need: they are all begun before the first ends.
        is_here = self._compiler.platform == "cpu"
        return jax.tree.map(np.asarray, results) if is_here else jax.device_get(results)

    def _compile(self, plan: Plan, batch: Batch, needed: Mapping[int, Needed]) -> _Compiled:
        sizes = {i: each.size for i, each in needed.items()}
        key = tuple(sorted(sizes.items()))
        if key in plan.programs:
            return plan.programs[key]
        tables = self._tables

        def step(state: Any, batch: Any, positions: Any) -> PyTree:
            held = dict(enumerate(tables.values()))
            numbers = {place: n for n, place in enumerate(tables)}
            rows = {numbers[i]: size for i, size in sizes.items()}
            where = {numbers[i]: each for i, each in positions.items()}
            with lookups.windows(list(held.values()), rows, where):
                return self._results(state, *self._step(state, batch))

        positions = {i: list(each.positions) for i, each in needed.items()}
        traced = Traced.of(step, self._shapes(sizes), batch, positions)
        changed = self._changed_places(traced)
        part = traced.part(lambda r: _only_changes(r, changed), self._compiler)
        self._check_state(part)
        plan.programs[key] = _Compiled(part, changed)
        return plan.programs[key]

    def _step(self, state: Any, batch: Any) -> Any:
        """Returns (logs or outputs, after, gradients) of the model's own step."""
        model, caught = self._model, list[Any]()
        arguments = tuple(list(state[g]) for g in _GROUPS[self._method])
        with caught_gradients(caught):
            outputs, after = getattr(model, self._method)(arguments, unpack(batch))
        full: list[Any] = [state[0], state[1], state[2], state[3]]
        if self._method == "predict_step":
            return outputs, (state[0], after, state[2], state[3]), []
        for group, values in zip(_GROUPS[self._method], after, strict=True):
            full[group] = values
        gradients = only_gradients(caught, model) if self._method == "train_step" else []
        return outputs, tuple(full), gradients

    def _results(self, state: Any, outputs: Any, after: Any, gradients: list[Any]) -> PyTree:
        results: dict[str, Any] = {"logs": jax.tree.map(jnp.asarray, outputs)}
        if self._method == "train_step":
            applied = clipped_as_applied(self._model.optimizer, gradients)
            results["gradients"] = {i: g for i, g in enumerate(applied) if g is not None}
        results["changes"] = dict(enumerate(differences(state[1], after[1])))
        results["non_trainable"] = list(after[1])
        results["metrics"] = differences(state[3], after[3]) if self._method != "predict_step" else []
        return results

    def _changed_places(self, traced: Traced) -> frozenset[int]:
        """Returns the places of the non-trainable variables that a step does not hand on as they are."""
        places = jax.tree.unflatten(traced.results, list(range(traced.results.num_leaves)))["non_trainable"]
        arguments = jax.tree.unflatten(traced.arguments, list(range(traced.arguments.num_leaves)))[0][1]
        forwards = traced.forwards()
        variables = self._model.non_trainable_variables
        return frozenset(
            i
            for i, (result, argument) in enumerate(zip(places, arguments, strict=True))
            if forwards.get(result) != argument and not is_seed(variables[i])
        )

    def _check_state(self, part: Part) -> None:
        """Raises `UnsupportedError` for a step that reads slots of the optimizer, which only servers have."""
        if self._method != "train_step":
            return
        used, known = part.uses()[0][2], self.optimizer_numbers()
        for i, (variable, is_used) in enumerate(zip(self._model.optimizer.variables, used, strict=True)):
            if is_used and i not in known:
                raise UnsupportedError(
                    "The optimizer's state is on the servers, where a step cannot read it. Received: "
                    f"{type(self._model).__name__}.train_step, which reads {variable.path!r}. Leave that out, or use "
                    "MultiWorkerMirroredStrategy."
                )

    def optimizer_numbers(self) -> dict[int, str]:
        """Returns the places of the optimizer's variables that are numbers for all weights, with their names."""
        optimizer = self._model.optimizer
        known = {id(optimizer._iterations): "iterations"}
        if hasattr(getattr(optimizer, "_learning_rate", None), "path"):
            known[id(optimizer._learning_rate)] = "learning_rate"
        return {i: known[id(v)] for i, v in enumerate(optimizer.variables) if id(v) in known}

    # ---- The state ----

    def _shapes(self, sizes: Mapping[int, int] | None = None) -> Any:
        model, sizes = self._model, sizes or {}
        slots = model.optimizer.variables if self._method == "train_step" else []
        metrics = model.metrics_variables if self._method != "predict_step" else []
        trainable = [
            jax.ShapeDtypeStruct((sizes.get(i, v.shape[0]), *v.shape[1:]) if isinstance(v, Table) else v.shape, v.dtype)
            for i, v in enumerate(model.trainable_variables)
        ]
        others = [
            [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in g] for g in (model.non_trainable_variables, slots, metrics)
        ]
        return (trainable, *others)

    def _state(self, inputs: Inputs) -> list[Any]:
        """Returns the variables one after the other, as `_shapes` has them in groups."""
        # Of slots only their number counts: no program takes them.
        optimizer = [inputs.optimizer.get(i, 0) for i in range(self._slots)]
        return [*inputs.trainable, *inputs.non_trainable, *optimizer, *inputs.metrics]

    def _seeds(self, values: Sequence[Any]) -> list[Any]:
        variables = self._model.non_trainable_variables
        return [value for variable, value in zip(variables, values, strict=True) if is_seed(variable)]

    def _placed(self, batch: Batch) -> Batch:
        rows = next((a.shape[0] for a in jax.tree.leaves(batch) if a.ndim), 0)
        divides = rows and rows % self._replicas.count == 0
        where = self._replicas.by_example if divides else self._replicas.whole
        return jax.tree.map(lambda a: jax.device_put(a, where if a.ndim else self._replicas.whole), batch)


def _only_changes(results: PyTree, changed: frozenset[int]) -> PyTree:
    kept = {k: v for k, v in results.items() if k != "non_trainable"}
    return {**kept, "changes": {i: v for i, v in results["changes"].items() if i in changed}}


def _signature(batch: Batch) -> Any:
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple((a.shape, a.dtype) for a in leaves)
