"""Equations of jaxprs that lowerings may replace, and the calls that take their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import primitives

from lockstep._types import Aval, Jaxpr, JaxprEquation


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


def trace_operands(compute: Callable[..., Any], eqn: JaxprEquation) -> Jaxpr:
    """Traces a function of an equation's operands, under the settings of jax that the equation was traced with."""
    avals: list[Any] = [v.aval for v in eqn.invars]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    with eqn.ctx.manager:
        return jax.make_jaxpr(compute)(*shapes)


def call_instead(eqn: JaxprEquation, jaxpr: Jaxpr) -> JaxprEquation:
    """Returns an equation with the operands and results of another that calls a jaxpr."""
    return eqn.replace(primitive=primitives.closed_call_p, params={"call_jaxpr": jaxpr})
