"""Equations of jaxprs that lowerings may replace, what reads their results, and the calls that take their places."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax import lax

from lockstep._engine.step.jaxprs import called_jaxpr, is_zero, open_jaxpr, variables, writers
from lockstep._types import Aval, JaxprEquation

_WIDE = ("int64", "uint64", "float64", "complex128")


@dataclass
class Flow:
    """Which equations write and read the variables of a program."""

    writers: Mapping[Any, JaxprEquation]
    results: set[Any]
    readers: dict[Any, list[JaxprEquation]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, body: Any) -> Flow:
        """Returns the flow of a jaxpr that is not closed."""
        flow = cls(writers(body), set(variables(body.outvars)))
        for eqn in body.eqns:
            for variable in dict.fromkeys(variables(eqn.invars)):
                flow.readers[variable].append(eqn)
        return flow

    def readers_alone(self, variable: Any) -> Sequence[JaxprEquation]:
        """Returns the equations that read a variable; none if it is a result of the program."""
        return () if variable in self.results else self.readers[variable]


def is_plain(eqn: JaxprEquation) -> bool:
    """Returns whether shapes are known, and XLA divides the operation, if anybody does."""
    # Shapes that `jax.export` left open, and operands whose types say how they are divided (explicit sharding), go the
    # way that jax knows.
    inputs: list[Any] = [v.aval for v in eqn.invars]
    outputs: list[Any] = [v.aval for v in eqn.outvars]
    if "preferred_element_type" in eqn.params and any(aval.dtype != inputs[0].dtype for aval in outputs):
        return False
    return all(map(_is_known, (*inputs, *outputs)))


def _is_known(aval: Aval) -> bool:
    sharding = getattr(aval, "sharding", None)
    is_divided = sharding is not None and any(part is not None for part in sharding.spec)
    return not is_divided and all(type(size) is int for size in aval.shape)


def call_instead(eqn: JaxprEquation, compute: Callable[..., Any]) -> JaxprEquation:
    """Returns an equation with the operands and results of another that calls a function of the operands.

    The function is traced under the settings of jax that the equation was traced with.
    """
    avals: list[Any] = [v.aval for v in eqn.invars]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    # Of the calls that jax knows only `jit` keeps its jaxpr when the program is traced again, and jax lowers a jaxpr
    # once however often it is called. Lowerings compute with 64 bits where programs do not: what they trace is traced
    # again with them.
    wide = any(str(getattr(v.aval, "dtype", "")) in _WIDE for v in (*eqn.invars, *eqn.outvars))
    with eqn.ctx.manager, jax.disable_jit(False), jax.enable_x64(True) if wide else contextlib.nullcontext():
        (call,) = open_jaxpr(jax.make_jaxpr(jax.jit(compute))(*shapes)).eqns
    return eqn.replace(primitive=call.primitive, params=call.params)


def is_relu(eqn: JaxprEquation, value: Any) -> bool:
    """Returns whether an equation, or one that it does nothing but call, is the larger of a value and zero."""
    if eqn.primitive is lax.max_p:
        return is_plain(eqn) and is_with_zero(eqn, value)
    called = called_jaxpr(eqn)
    body = None if called is None else open_jaxpr(called)
    if body is None or len(body.eqns) != 1 or len(body.invars) != 1 or body.outvars != body.eqns[0].outvars:
        return False
    return is_relu(body.eqns[0], body.invars[0])


def is_with_zero(eqn: JaxprEquation, value: Any) -> bool:
    """Returns whether an equation compares a value, its first operand, with zero."""
    first, second = eqn.invars
    return first is value and is_zero(second)
