"""Rewrites a program: where a rule knows better than XLA, a call of its operations takes an equation's place.

The rewriting is of jaxprs, so it acts in the programs that go through it and in no other of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, primitives

from lockstep._cpu.lowerings.rules import Rule, table
from lockstep._cpu.lowerings.windows import OWN_APART, apart
from lockstep._engine.step.jaxprs import replace_equations, replace_subjaxprs

# Their jaxprs are programs in another language than XLA's.
_CLOSED = frozenset(("pallas_call", "core_map"))


def rewritten(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a program that computes the same, up to rounding."""
    return _Rewriter().jaxpr(jaxpr)


class _Rewriter:
    """Rewrites the jaxprs of one program, each of them once: jax lowers a jaxpr once however often it is called."""

    def __init__(self) -> None:
        # With the jaxpr itself: an identity is good only as long as its object lives.
        self._known: dict[int, tuple[Any, Any]] = {}

    def jaxpr(self, jaxpr: Any) -> Any:
        """Returns a jaxpr, closed or not, as it is to be run; the same object if nothing changes."""
        if id(jaxpr) not in self._known:
            self._known[id(jaxpr)] = jaxpr, replace_equations(jaxpr, self._equation)
        return self._known[id(jaxpr)][1]

    def _equation(self, eqn: JaxprEqn) -> JaxprEqn:
        call = self._call(eqn)
        if call is not None:
            return eqn.replace(primitive=primitives.closed_call_p, params={"call_jaxpr": call})
        # A `shard_map` that checks how values vary wants that of each value, which a rule does not know.
        if eqn.primitive.name in _CLOSED or eqn.params.get("check_vma"):
            return eqn
        return replace_subjaxprs(eqn, self.jaxpr)

    def _call(self, eqn: JaxprEqn) -> ClosedJaxpr | None:
        """Returns what is to be run for an equation; `None` if it stays."""
        rules = _rules().get(eqn.primitive)
        if not rules or not _is_plain(eqn):
            return None
        avals = [v.aval for v in eqn.invars]
        for rule in rules:
            compute = rule(*avals, **eqn.params)
            if compute is OWN_APART:
                bind = partial(eqn.primitive.bind, **eqn.primitive.get_bind_params(eqn.params))
                return _traced(apart(bind), eqn)
            if compute is not None:
                # Rules leave parts to each other: what one makes of a convolution is another convolution.
                return self.jaxpr(_traced(compute, eqn))
        return None


@cache
def _rules() -> dict[Any, tuple[Rule, ...]]:
    return table()


def _traced(compute: Callable[..., Any], eqn: JaxprEqn) -> ClosedJaxpr:
    avals: list[Any] = [v.aval for v in eqn.invars]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    with eqn.ctx.manager:
        return jax.make_jaxpr(compute)(*shapes)


def _is_plain(eqn: JaxprEqn) -> bool:
    """Returns whether shapes are known, and XLA divides the operation, if anybody does.

    Shapes that `jax.export` left open, and operands whose types say how they are divided (explicit sharding), go the
    way that jax knows.
    """
    taken: list[Any] = [v.aval for v in eqn.invars]
    made: list[Any] = [v.aval for v in eqn.outvars]
    # Of an operation with one result: a `preferred_element_type` of its own.
    if not eqn.primitive.multiple_results and any(aval.dtype != taken[0].dtype for aval in made):
        return False
    return all(map(_is_known, (*taken, *made)))


def _is_known(aval: Any) -> bool:
    sharding = getattr(aval, "sharding", None)
    divided = sharding is not None and any(part is not None for part in sharding.spec)
    return not divided and all(type(size) is int for size in aval.shape)
