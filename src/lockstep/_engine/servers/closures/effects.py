"""Finds effects in a traced function: the updates that servers apply to their variables.

A worker computes with values of some time ago. So an effect must not be a new value, which would undo what others have
done meanwhile: it is a function of the variable as the server has it, and of what the worker has computed. For a
variable that an optimizer updates, that is all from its gradient on, together with its slots. For `v.assign_add(x)` it
is the sum. Where the new value depends on the old one through more than a few elementwise operations, the difference is
added, and where it does not depend on it at all, it is set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep._engine.servers.closures.dataflow import Dataflow
from lockstep._engine.step.jaxprs import evaluate_equation, read, variables
from lockstep._types import Array

# Of one element each, whatever the shape: a range of rows of the result needs that range of the operands.
_ELEMENTWISE = frozenset(
    "abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy copy_p cos cosh div "  # noqa: SIM905
    "eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul name ne "
    "neg nextafter not or pow rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan tanh xor "
    "broadcast_in_dim".split()
)
# More than an average or a maximum takes; beyond it lies somebody's model.
_MOST_STEPS = 32


@dataclass(frozen=True)
class Effect:
    """Describes what a server does to variables that belong together.

    Attributes:
        variables: Their numbers among the variables of the function: what is read, and given a new value.
        payload: The numbers of what workers send.
        run: `(values, payload, rows) -> values`, which JAX traces; `rows` is the length of a range of rows, or `None`.
        is_by_rows: Whether each row of the values depends on that row of the values and of the payload alone.
    """

    variables: tuple[int, ...]
    payload: tuple[int, ...]
    run: Callable[[Sequence[Array], Sequence[Array], int | None], list[Array]]
    is_by_rows: bool


def effects_of(flow: Dataflow) -> tuple[tuple[Effect, ...], list[Any]]:
    """Returns what servers do, and what workers send for it.

    What is sent are values of the function, and differences `(new, old)`, which are no values of it.
    """
    finder = _Finder(flow)
    return finder.effects(), list(finder.payload)


class _Finder:
    """Finds the effects of one function; see `effects_of`."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        # What is sent, numbered.
        self.payload: dict[Any, int] = {}

    def effects(self) -> tuple[Effect, ...]:
        groups = self._groups()
        effects = tuple(self._effect_of_group(group) for group in groups)
        updated = {n for group in groups for n in group}
        # What keeps its value is no effect.
        flow = self._flow
        changed = [n for n, atom in flow.outputs.items() if n in flow.amounts or atom is not flow.input_of[n]]
        return effects + tuple(self._effect_of(n) for n in changed if n not in updated)

    def _groups(self) -> list[list[int]]:
        """Returns the variables that gradients update, each with those that its update reads and moves."""
        regions = {n: self._flow.region(atom) for n, atom in self._flow.outputs.items() if n not in self._flow.amounts}
        updated = {n for n, (_, leaves) in regions.items() if leaves & self._flow.cuts}
        group_of = {n: {n} for n in updated}
        number_of = {var: n for n, var in self._flow.input_of.items()}
        for n in sorted(updated):
            for other in {number_of[v] for v in regions[n][1] if v in number_of} & updated:
                merged = group_of[n] | group_of[other]
                for member in merged:
                    group_of[member] = merged
        return [sorted(g) for g in {id(g): g for g in group_of.values()}.values()]

    def _effect_of_group(self, group: Sequence[int]) -> Effect:
        steps = set[int]().union(*(self._flow.region(self._flow.outputs[n])[0] for n in group))
        return self._effect(group, self._flow.dependent(steps, (self._flow.input_of[n] for n in group)), steps)

    def _effect_of(self, number: int) -> Effect:
        atom, own = self._flow.outputs[number], self._flow.input_of[number]
        if number in self._flow.amounts:
            return self._addition(number, atom)
        steps, leaves = self._flow.region(atom)
        if own not in leaves and atom is not own:
            return self._effect([number], [], steps)
        last = self._flow.maker.get(atom) if atom is not own else None
        if last is not None and self._adds(self._flow.eqns[last], own):
            return self._effect([number], [last], steps - {last})
        path = self._flow.dependent(steps, [own])
        if len(path) <= _MOST_STEPS and all(self._flow.eqns[n].primitive.name in _ELEMENTWISE for n in path):
            return self._effect([number], path, steps)
        if own.aval.dtype == bool:
            return self._effect([number], [], set())
        return self._addition(number, (atom, own))

    @staticmethod
    def _adds(eqn: Any, own: Any) -> bool:
        """Returns whether an equation adds something to a variable, or takes it off."""
        at = [i for i, v in enumerate(eqn.invars) if v is own]
        return (eqn.primitive.name == "add" and len(at) == 1) or (eqn.primitive.name == "sub" and at == [0])

    def _addition(self, number: int, what: Any) -> Effect:
        """Returns the effect that adds what a worker sends."""
        dtype = self._flow.input_of[number].aval.dtype

        def run(values: Sequence[Array], payload: Sequence[Array], rows: int | None) -> list[Array]:
            del rows
            return [jnp.add(values[0], payload[0]).astype(dtype)]

        return Effect((number,), (self._send(what),), run, is_by_rows=True)

    def _send(self, what: Any) -> int:
        return self.payload.setdefault(what, len(self.payload))

    def _effect(self, group: Sequence[int], steps: Sequence[int], region: set[int]) -> Effect:
        """Returns the effect of equations on a group; of what they need besides, as little as possible is sent."""
        own = [self._flow.input_of[n] for n in group]
        outputs = [self._flow.outputs[n] for n in group]
        chosen = self._with_cheap(set(steps), region, own, outputs)
        needed = self._inputs_of(chosen, own, outputs)
        constants = {v: self._flow.constants[v] for v in needed if v in self._flow.constants}
        sent = [v for v in needed if v not in constants]
        payload = tuple(self._send(v) for v in sent)
        ordered = [self._flow.eqns[n] for n in sorted(chosen)]

        def run(values: Sequence[Array], given: Sequence[Array], rows: int | None) -> list[Array]:
            known = {**constants, **dict(zip(own, values, strict=True)), **dict(zip(sent, given, strict=True))}
            for eqn in ordered:
                known.update(zip(eqn.outvars, _evaluate(eqn, [read(known, v) for v in eqn.invars], rows), strict=True))
            return [
                jnp.broadcast_to(jnp.asarray(read(known, out), var.aval.dtype), np.shape(value))
                for out, var, value in zip(outputs, own, values, strict=True)
            ]

        return Effect(tuple(group), payload, run, self._is_by_rows(group, ordered, needed, outputs))

    def _inputs_of(self, chosen: set[int], own: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """Returns what equations and outputs take that they do not make."""
        made = {v for n in chosen for v in self._flow.eqns[n].outvars} | set(own)
        taken = [v for n in sorted(chosen) for v in variables(self._flow.eqns[n].invars)] + list(variables(outputs))
        return [v for v in dict.fromkeys(taken) if v not in made]

    def _with_cheap(self, chosen: set[int], region: set[int], own: Sequence[Any], outputs: Sequence[Any]) -> set[int]:
        """Returns the equations with those that make an array of what servers are sent anyway, such as its square."""
        while True:
            needed = self._inputs_of(chosen, own, outputs)
            there = set(needed) | set(own) | {v for n in chosen for v in self._flow.eqns[n].outvars}
            for var in needed:
                number = self._flow.maker.get(var)
                if number is None or number not in region or var in self._flow.cuts or not var.aval.shape:
                    continue
                eqn = self._flow.eqns[number]
                arrays = [v for v in variables(eqn.invars) if v.aval.shape]
                if eqn.primitive.name in _ELEMENTWISE and not eqn.effects and all(v in there - {var} for v in arrays):
                    chosen = chosen | {number}
                    break
            else:
                return chosen

    def _is_by_rows(
        self, group: Sequence[int], steps: Sequence[Any], needed: Sequence[Any], outputs: Sequence[Any]
    ) -> bool:
        shapes = {self._flow.input_of[n].aval.shape for n in group}
        if len(shapes) != 1 or not (shape := shapes.pop()):
            return False
        # Constants are whole arrays of the program.
        if any(v in self._flow.constants and v.aval.shape for v in needed):
            return False
        atoms = [*needed, *outputs, *(v for eqn in steps for v in (*eqn.invars, *eqn.outvars))]
        if any(a.aval.shape not in ((), shape) for a in atoms):
            return False
        return all(eqn.primitive.name in _ELEMENTWISE for eqn in steps)


def _evaluate(eqn: Any, values: Sequence[Any], rows: int | None) -> list[Any]:
    """Applies an equation to whole arrays, or to a range of rows of them."""
    if rows is None or eqn.primitive.name != "broadcast_in_dim":
        return evaluate_equation(eqn, values)
    shape = eqn.params["shape"]
    if np.shape(values[0]):  # Of the variable's shape already.
        return [values[0]]
    return [jnp.broadcast_to(values[0], (rows, *shape[1:]))]
