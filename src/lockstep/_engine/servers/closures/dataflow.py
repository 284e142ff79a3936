"""Follows the data of a traced function: its variables, the gradients in it, and what it assigns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import jax

from lockstep._engine.step.jaxprs import (
    called_jaxpr,
    constants_of,
    evaluate_equation,
    evaluate_stepwise,
    open_jaxpr,
    variables,
)
from lockstep._types import Array, Jaxpr

Way = Literal["value", "amount"]
_CALLS = frozenset(("pjit", "jit", "closed_call", "core_call"))


class Dataflow:
    """The equations of a function, and how its variables, its gradients and what it assigns hang together.

    Args:
        closed, arguments, assigned, is_cut: As `division.divide` takes them.

    Attributes:
        inputs: The function's inputs.
        results: What it returns.
        eqns: Its equations, those of functions that are no more than called included.
        constants: Values of the program's constants.
        maker: By what equations make: the number of the equation.
        cuts: The gradients.
        input_of: By the number of a variable: its input.
        outputs: By the number of a variable: what is assigned.
        amounts: The numbers of variables to which that is added.
    """

    def __init__(
        self, closed: Jaxpr, arguments: int, assigned: Sequence[tuple[int, Way]], is_cut: Callable[[Any], bool]
    ) -> None:
        closed = inline_calls(closed)
        body = open_jaxpr(closed)
        count = len(body.outvars) - len(assigned)
        self.inputs, self.results, self.eqns = body.invars, body.outvars[:count], body.eqns
        self.constants: Mapping[Any, Any] = dict(zip(body.constvars, constants_of(closed), strict=True))
        self.maker: Mapping[Any, int] = {v: i for i, eqn in enumerate(self.eqns) for v in eqn.outvars}
        self.cuts = {v for eqn in self.eqns if is_cut(eqn) for v in eqn.outvars}
        self.input_of: Mapping[int, Any] = dict(enumerate(body.invars[arguments:]))
        self.outputs: Mapping[int, Any] = {n: body.outvars[count + i] for i, (n, _) in enumerate(assigned)}
        self.amounts = {number for number, way in assigned if way == "amount"}

    def region(self, atom: Any) -> tuple[set[int], set[Any]]:
        """Returns the equations that a value is computed by, from gradients and inputs on; and these."""
        steps, leaves, pending = set[int](), set[Any](), list(variables([atom]))
        while pending:
            var = pending.pop()
            if var in self.cuts or var not in self.maker:
                leaves.add(var)
            elif (number := self.maker[var]) not in steps:
                steps.add(number)
                pending += variables(self.eqns[number].invars)
        return steps, leaves

    def dependent(self, steps: set[int], own: Iterable[Any]) -> list[int]:
        """Returns those of some equations that depend on variables, in their order."""
        reached = set(own)
        found: list[int] = []
        for number in sorted(steps):
            eqn = self.eqns[number]
            if any(v in reached and v not in self.cuts for v in variables(eqn.invars)):
                reached.update(eqn.outvars)
                found.append(number)
        return found

    def reached(self, outputs: Iterable[Any], are_all: bool = True) -> dict[int, Any]:
        """Returns the equations that values are computed by; with `are_all` those that print, too."""
        reached = {n for n, eqn in enumerate(self.eqns) if eqn.effects} if are_all else set[int]()
        pending = list(variables([*outputs, *(v for n in reached for v in self.eqns[n].invars)]))
        while pending:
            if (number := self.maker.get(pending.pop())) is not None and number not in reached:
                reached.add(number)
                pending += variables(self.eqns[number].invars)
        return {n: self.eqns[n] for n in sorted(reached)}

    def used(self, eqns: Mapping[int, Any], outputs: Iterable[Any]) -> tuple[int, ...]:
        """Returns the numbers of the inputs that equations and outputs take."""
        needed = {v for eqn in eqns.values() for v in variables(eqn.invars)} | set(variables(outputs))
        return tuple(n for n, v in enumerate(self.inputs) if v in needed)


def inline_calls(closed: Jaxpr) -> Jaxpr:
    """Returns a closed jaxpr in which functions that are no more than called are a part of it."""

    def evaluate(*inputs: Array) -> list[Array]:
        return _evaluate_inlined(closed, inputs)

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals]
    return jax.make_jaxpr(evaluate)(*shapes)


def _evaluate_inlined(closed: Jaxpr, inputs: Sequence[Array]) -> list[Array]:
    steps = evaluate_stepwise(closed, inputs)
    try:
        eqn, values = next(steps)
        while True:
            called = called_jaxpr(eqn) if eqn.primitive.name in _CALLS else None
            found = evaluate_equation(eqn, values) if called is None else _evaluate_inlined(called, values)
            eqn, values = steps.send(found)
    except StopIteration as end:
        return list(end.value)
