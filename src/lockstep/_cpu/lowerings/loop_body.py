"""The body of a `lax.scan`: its equations by what they make and take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._cpu.lowerings.convolution import is_varying
from lockstep._engine.step.jaxprs import evaluate_equation, open_jaxpr, read, scan_counts, variables
from lockstep._types import JaxprAtom


@dataclass(frozen=True)
class Body:
    """A round of a loop.

    Variables are those of jax: what an equation makes, or an input. An output may also be a number.

    Attributes:
        equations: In the order in which they run.
        fixed, carried, rows: The inputs: the same in each round, from the last round, this round's part of an array.
        after: What comes of `carried`.
        stacked: The outputs of all rounds.
        options: `length`, `reverse` and `unroll`, as `lax.scan` takes them.
    """

    equations: tuple[Any, ...]
    fixed: tuple[Any, ...]
    carried: tuple[Any, ...]
    rows: tuple[Any, ...]
    after: tuple[Any, ...]
    stacked: tuple[Any, ...]
    options: Mapping[str, Any]

    @property
    def length(self) -> int:
        """The number of rounds."""
        return self.options["length"]

    @cached_property
    def maker(self) -> dict[Any, Any]:
        """The equation of each variable that is no input."""
        return {variable: equation for equation in self.equations for variable in equation.outvars}

    @cached_property
    def users(self) -> dict[Any, list[Any]]:
        """The equations that use a variable, each as often as it does."""
        users: dict[Any, list[Any]] = {}
        for equation in self.equations:
            for variable in variables(equation.invars):
                users.setdefault(variable, []).append(equation)
        return users

    @cached_property
    def late(self) -> frozenset[Any]:
        """The variables that depend on the round before."""
        return self._dependents(self.carried)

    @cached_property
    def varying(self) -> frozenset[Any]:
        """The variables that are not the same in each round."""
        return self._dependents((*self.carried, *self.rows))

    def _dependents(self, inputs: Iterable[Any]) -> frozenset[Any]:
        found = set(inputs)
        for equation in self.equations:
            if not found.isdisjoint(variables(equation.invars)):
                found.update(equation.outvars)
        return frozenset(found)

    def uses(self, variable: JaxprAtom) -> int:
        """Returns how often a variable is used, by equations and as an output."""
        return len(self.users.get(variable, ())) + self._handed_out[variable]

    @cached_property
    def _handed_out(self) -> Counter[Any]:
        return Counter(variables((*self.after, *self.stacked)))

    def split(self, operands: Sequence[Any]) -> tuple[dict[Any, Any], list[Any], dict[Any, Any]]:
        """Splits a `scan`'s operands: what is fixed, by variable; what is carried at first; the rows, by variable."""
        values = iter(operands)
        fixed = {v: next(values) for v in self.fixed}
        first = [next(values) for _ in self.carried]
        return fixed, first, dict(zip(self.rows, values, strict=True))

    def compute(self, wanted: Sequence[Any], known: Mapping[Any, Any]) -> list[Any]:
        """Computes variables from those that are known."""
        values = dict(known)
        for equation in reversed(list(self._needed_equations(wanted, known))):
            made = evaluate_equation(equation, [read(values, v) for v in equation.invars])
            values.update(zip(equation.outvars, made, strict=True))
        return [jnp.asarray(read(values, v), v.aval.dtype) if is_number(v) else values[v] for v in wanted]

    def _needed_equations(self, wanted: Sequence[Any], known: Mapping[Any, Any]) -> Iterator[Any]:
        """Yields the equations for that, from the last to the first."""
        needed = set(variables(wanted)).difference(known)
        for equation in reversed(self.equations):
            if not needed.isdisjoint(equation.outvars):
                needed.update(v for v in variables(equation.invars) if v not in known)
                yield equation

    def compute_together(self, wanted: Sequence[Any], fixed: Mapping[Any, Any], rows: Mapping[Any, Any]) -> list[Any]:
        """Computes variables of all rounds from arrays that have `rows` of all rounds."""
        one_round = jax.vmap(lambda *parts: self.compute(wanted, {**fixed, **dict(zip(rows, parts, strict=True))}))
        return one_round(*rows.values()) if wanted else []


def body_of(operands: Sequence[Any], params: Mapping[str, Any]) -> Body | None:
    """Returns the body of a `scan`, given its operands and parameters; `None` if no rule may take the loop's place."""
    jaxpr = open_jaxpr(params["jaxpr"])
    inputs, outputs = jaxpr.invars, jaxpr.outvars
    try:
        fixed, carried = scan_counts(params, len(inputs))
    except LookupError:
        return None
    # It does more than to compute values, or an export leaves the length open.
    if jaxpr.constvars or jaxpr.effects or type(params["length"]) is not int or any(map(is_varying, operands)):
        return None
    return Body(
        tuple(jaxpr.eqns),
        tuple(inputs[:fixed]),
        tuple(inputs[fixed : fixed + carried]),
        tuple(inputs[fixed + carried :]),
        tuple(outputs[:carried]),
        tuple(outputs[carried:]),
        {name: params[name] for name in ("length", "reverse", "unroll")},
    )


def is_number(atom: JaxprAtom) -> bool:
    """Returns whether an atom is a literal."""
    return hasattr(atom, "val")


def nbytes(variable: JaxprAtom) -> int:
    """Returns the bytes of one round's value."""
    return math.prod(variable.aval.shape) * variable.aval.dtype.itemsize
