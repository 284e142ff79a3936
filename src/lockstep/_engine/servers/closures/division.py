"""Divides a traced function into what a worker computes and what servers do to their variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._engine.servers.closures.dataflow import Dataflow, Way
from lockstep._engine.servers.closures.effects import Effect, effects_of
from lockstep._engine.servers.closures.windows import Window, evaluate, find_window, leaves_rows, window_shape
from lockstep._engine.step.jaxprs import equations, read, variables
from lockstep._types import Array, Jaxpr
from lockstep.errors import UnsupportedError


@dataclass(frozen=True)
class Division:
    """A function in two parts.

    Attributes:
        compute: `(*inputs) -> (*results, *payload)` of the worker, which JAX traces; of the inputs that are used.
        used: The numbers of these inputs, among all.
        results: How many of its outputs are results.
        payload: Shapes and dtypes of the others.
        effects: What servers do.
        windows: The tables of which a worker has rows alone: `compute` takes windows in place of them, and after all
            inputs, of each table for each of its lookups, int32 rows in the window.
        ids: `(*inputs) -> ids` of all lookups, which JAX traces; of the inputs `ids_used`.
        ids_used: The numbers of these inputs, among all.
        rows_of: By the number of what is a gradient of rows of a window in the payload: the number of the window.
    """

    compute: Callable[..., list[Array]]
    used: tuple[int, ...]
    results: int
    payload: tuple[jax.ShapeDtypeStruct, ...]
    effects: tuple[Effect, ...]
    windows: tuple[Window, ...] = ()
    ids: Callable[..., list[Array]] | None = None
    ids_used: tuple[int, ...] = ()
    rows_of: Mapping[int, int] = field(default_factory=dict[int, int])

    def window_of(self, effect: Effect) -> int | None:
        """Returns the number of the window whose gradients an effect takes."""
        return next((self.rows_of[n] for n in effect.payload if n in self.rows_of), None)


def divide(
    closed: Jaxpr, arguments: int, assigned: Sequence[tuple[int, Way]], is_cut: Callable[[Any], bool]
) -> Division:
    """Divides a traced function.

    Args:
        closed: `(*arguments, *variables) -> (*results, *assigned)`, a closed jaxpr.
        arguments: How many arguments there are.
        assigned: Of each of the last outputs: the number of its variable, and whether it is the new value or the amount
            that is added.
        is_cut: Returns whether an equation marks a gradient.
    """
    return _Worker(Dataflow(closed, arguments, assigned, is_cut)).division()


class _Worker:
    """Cuts out of a function what a worker computes, and completes the division."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow

    def division(self) -> Division:
        flow = self._flow
        effects, sent = effects_of(flow)
        eqns = flow.reached([*flow.results, *_atoms(sent)])
        shapes = tuple(jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype) for a in map(_first, sent))
        windows, rows_of = self._windows(eqns, sent, shapes, effects)
        sizes = {n: windows[w].size for n, w in rows_of.items()}
        shapes = tuple(window_shape(s, sizes[n]) if n in sizes else s for n, s in enumerate(shapes))
        compute, used = self._compute(sent, eqns, windows)
        ids, ids_used = self._ids(windows)
        return Division(compute, used, len(flow.results), shapes, effects, windows, ids, ids_used, rows_of)

    def _windows(
        self, eqns: Mapping[int, Any], sent: Sequence[Any], shapes: Sequence[Any], effects: Sequence[Effect]
    ) -> tuple[tuple[Window, ...], dict[int, int]]:
        """Returns the tables of which a worker needs rows alone; and what of the payload is gradients of them."""
        effect_of = {v: e for e in effects for v in e.variables}
        read_here = {v for eqn in eqns.values() for v in variables(eqn.invars)}
        found: list[Window] = []
        rows_of: dict[int, int] = {}
        for number, own in self._flow.input_of.items():
            effect = effect_of.get(number)
            if own not in read_here:
                continue
            gradients = [] if effect is None else [n for n in effect.payload if shapes[n].shape == own.aval.shape]
            if effect is not None and not (gradients and self._is_sparse(effect, number, read_here, sent, shapes)):
                continue
            others = {*variables(self._flow.results)}
            others |= {a for n, s in enumerate(sent) if n not in gradients for a in variables(_atoms([s]))}
            window = find_window(number, own, eqns, [sent[n] for n in gradients], others)
            if window is not None and not self._ids_need_tables(window):
                rows_of |= dict.fromkeys(gradients, len(found))
                found.append(window)
        return tuple(found), rows_of

    def _is_sparse(
        self, effect: Effect, table: int, read_here: Collection[Any], sent: Sequence[Any], shapes: Sequence[Any]
    ) -> bool:
        """Returns whether an effect works by rows, and leaves those without a gradient as they are."""
        shape = self._flow.input_of[table].aval.shape
        slots = [self._flow.input_of[n] for n in effect.variables if n != table]
        gradients = [i for i, n in enumerate(effect.payload) if shapes[n].shape == shape]
        if not effect.is_by_rows or any(slot in read_here for slot in slots):
            return False
        if any(_is_pair(sent[effect.payload[i]]) for i in gradients):
            return False
        held = [self._flow.input_of[n].aval for n in effect.variables]
        return leaves_rows(effect.run, held, [shapes[n] for n in effect.payload], gradients)

    def _ids_need_tables(self, window: Window) -> bool:
        """Returns whether ids are computed from something that large: rows must be known before there are any."""
        ids = [atom for atom, _ in window.lookups]
        used = self._flow.used(self._flow.reached(ids, are_all=False), ids)
        variables_of = {v: n for n, v in self._flow.input_of.items()}
        return any(self._flow.inputs[n] in variables_of and self._flow.inputs[n].aval.shape for n in used)

    def _ids(self, windows: Sequence[Window]) -> tuple[Callable[..., list[Array]] | None, tuple[int, ...]]:
        """Returns the program of the ids that a call looks up, and the inputs that it takes."""
        if not windows:
            return None, ()
        atoms = [ids for window in windows for ids, _ in window.lookups]
        eqns = self._flow.reached(atoms, are_all=False)
        used = self._flow.used(eqns, atoms)

        def ids(*inputs: Array) -> list[Array]:
            known = {**self._flow.constants, **{self._flow.inputs[n]: x for n, x in zip(used, inputs, strict=True)}}
            evaluate(eqns, known, (), ())
            return [read(known, atom) for atom in atoms]

        return ids, used

    def _compute(
        self, sent: Sequence[Any], eqns: Mapping[int, Any], windows: Sequence[Window]
    ) -> tuple[Callable[..., list[Array]], tuple[int, ...]]:
        used = self._flow.used(eqns, [*self._flow.results, *_atoms(sent)])

        def compute(*inputs: Array) -> list[Array]:
            known = {**self._flow.constants, **{self._flow.inputs[n]: x for n, x in zip(used, inputs, strict=False)}}
            given = iter(inputs[len(used) :])
            evaluate(eqns, known, windows, [[next(given) for _ in w.lookups] for w in windows])
            results = [jnp.asarray(read(known, a), a.aval.dtype) for a in self._flow.results]
            return results + [_value_of(known, s) for s in sent]

        return compute, used


def _is_pair(what: Any) -> bool:
    return isinstance(what, tuple)


def _atoms(sent: Iterable[Any]) -> list[Any]:
    return [atom for what in sent for atom in (what if _is_pair(what) else (what,))]


def _first(what: Any) -> Any:
    return what[1] if _is_pair(what) else what


def _value_of(known: Mapping[Any, Any], what: Any) -> Array:
    if _is_pair(what):
        new, old = what
        return (jnp.asarray(read(known, new), old.aval.dtype) - known[old]).astype(old.aval.dtype)
    return jnp.asarray(read(known, what), what.aval.dtype)


def demand_shippable(closed: Jaxpr, name: str) -> None:
    """Raises `UnsupportedError` for a function that calls Python while it runs."""
    found = next((e.primitive.name for e in equations(closed) if "callback" in e.primitive.name), None)
    if found is not None:
        raise UnsupportedError(
            "Workers run what JAX has compiled, and have none of the program's Python. Received: "
            f"{name}, which calls Python while it runs ({found}). Do that in the dataset's map function, which the "
            "coordinator runs, or after `join`."
        )
