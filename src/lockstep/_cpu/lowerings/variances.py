"""Gradients of variances, as layers that normalise have them.

Deviations from a mean sum to zero. So does what differentiation makes of the mean in a variance: a sum, over the axes
of the mean, of deviations times what is constant along them. XLA adds these zeros up, for which it has to write them.

It also writes the deviations, because more than one operation needs them; if the gradient computes its own, each is a
part of what reads it. Together these are five of the 18 times that batch normalisation and a relu read or write an
array as large as their input, forward and backward.

A step of MobileNetV2 on 16 pictures of 224x224, whose arrays have up to 77 MB, takes 483 ms, not 557; networks whose
arrays a cache holds gain nothing: Xception (13 MB) 351 and 341, ConvNeXtTiny (10 MB) 215 and 211, ResNet-18 on 64
pixels 225 and 226 (2-core EPYC with AVX-512, with and without, processes in turn).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import primitives

from lockstep._cpu.lowerings.equations import call_instead, is_plain
from lockstep._engine.step.jaxprs import (
    evaluate_equation,
    evaluate_jaxpr,
    open_jaxpr,
    replace_equations,
    select_results,
    variables,
    writer_of,
    writers,
)
from lockstep._types import Jaxpr, JaxprAtom, JaxprEquation

# Of the function that `jax.numpy.var` is, and of what differentiation makes of it.
_NAME = "_var"
# Bytes of an array that no cache holds.
_LARGE = 1 << 24


@dataclass(frozen=True)
class _Deviations:
    """Deviations from a mean, times a number, that a call returns for its gradient.

    Attributes:
        equation: The call.
        result: The number of the result.
        mean: The variable of the mean inside of the call.
        axes: The axes that it is taken over.
    """

    equation: JaxprEquation
    result: int
    mean: Any
    axes: tuple[int, ...]


def simplify_variances(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program, closed or not; the same object if nothing changes."""
    known: dict[Any, _Deviations] = {}
    for eqn in open_jaxpr(jaxpr).eqns:
        if _is_variance(eqn):
            known.update(_deviations(eqn))
    return replace_equations(jaxpr, lambda eqn: _rewrite(eqn, known)) if known else jaxpr


def _is_variance(eqn: JaxprEquation) -> bool:
    """Returns whether an equation calls a variance of something large, or its gradient."""
    is_named = eqn.primitive is primitives.jit_p and eqn.params["name"] == _NAME
    avals: list[Any] = [v.aval for v in eqn.invars]
    return is_named and is_plain(eqn) and max((a.size * a.dtype.itemsize for a in avals), default=0) >= _LARGE


def _deviations(eqn: JaxprEquation) -> dict[Any, _Deviations]:
    """Returns the results of a call that are deviations from a mean, times a number, by their variables."""
    body = open_jaxpr(eqn.params["jaxpr"])
    made_by = writers(body)
    found: dict[Any, _Deviations] = {}
    for number, (inner, outer) in enumerate(zip(body.outvars, eqn.outvars, strict=True)):
        factors = _factors(writer_of(inner, made_by))
        # Twice the deviations are the derivative of their squares.
        value = next((b for a, b in (factors, factors[::-1]) if not a.aval.shape), inner) if factors else inner
        mean = _mean(writer_of(value, made_by), made_by)
        if mean is not None:
            found[outer] = _Deviations(eqn, number, *mean)
    return found


def _mean(deviation: JaxprEquation | None, made_by: Mapping[Any, JaxprEquation]) -> tuple[Any, tuple[int, ...]] | None:
    """Returns the variable of a mean, and its axes, if an equation subtracts it from what it is the mean of."""
    if deviation is None or deviation.primitive is not lax.sub_p:
        return None
    value, mean = deviation.invars
    division = writer_of(mean, made_by)
    if division is None or division.primitive is not lax.div_p:
        return None
    total = writer_of(division.invars[0], made_by)
    if total is not None and total.primitive is lax.broadcast_in_dim_p:
        total = writer_of(total.invars[0], made_by)
    if total is None or total.primitive is not lax.reduce_sum_p or total.invars[0] is not value:
        return None
    axes = tuple(total.params["axes"])
    count = math.prod(value.aval.shape[axis] for axis in axes)
    is_mean = getattr(division.invars[1], "val", None) == count
    return (mean, axes) if is_mean else None


def _factors(eqn: JaxprEquation | None) -> Sequence[JaxprAtom]:
    """Returns what an equation multiplies; nothing if it is no product."""
    return eqn.invars if eqn is not None and eqn.primitive is lax.mul_p else ()


def _rewrite(eqn: JaxprEquation, known: Mapping[Any, _Deviations]) -> JaxprEquation:
    """Returns an equation that computes the same; the same object if nothing better is known."""
    variable = next((v for v in variables(eqn.invars) if v in known), None)
    if variable is None or not _is_variance(eqn):
        return eqn
    deviations, place = known[variable], eqn.invars.index(variable)
    jaxpr = eqn.params["jaxpr"]
    zero = _zero_sum(open_jaxpr(jaxpr), place, deviations.axes)
    if zero is None:
        return eqn
    part, inputs = select_results(deviations.equation.params["jaxpr"], [deviations.result])
    own = [deviations.equation.invars[i] for i in inputs]

    def compute(*operands: jax.Array) -> list[jax.Array]:
        given, others = operands[: len(own)], list(operands[len(own) :])
        # Not joined with the same in the forward pass again.
        (value,) = _evaluate(part, given, deviations.mean, lax.optimization_barrier)
        return _evaluate(jaxpr, [*others[:place], value, *others[place:]], zero, jnp.zeros_like)

    short = eqn.replace(invars=[*own, *eqn.invars[:place], *eqn.invars[place + 1 :]])
    return call_instead(short, compute)


def _zero_sum(body: Any, place: int, axes: tuple[int, ...]) -> Any:
    """Returns the variable of a sum over axes of deviations, an input, times what is constant along these axes."""
    made_by = writers(body)
    for eqn in body.eqns:
        if eqn.primitive is not lax.reduce_sum_p or tuple(eqn.params["axes"]) != axes:
            continue
        terms = writer_of(eqn.invars[0], made_by)
        if terms is not None and terms.primitive is lax.neg_p:
            terms = writer_of(terms.invars[0], made_by)
        factors = _factors(terms)
        for value, other in (factors, factors[::-1]) if factors else ():
            if value is body.invars[place] and _is_constant_along(axes, writer_of(other, made_by)):
                return eqn.outvars[0]
    return None


def _is_constant_along(axes: tuple[int, ...], eqn: JaxprEquation | None) -> bool:
    """Returns whether an equation repeats something along axes."""
    if eqn is None or eqn.primitive is not lax.broadcast_in_dim_p:
        return False
    sizes = dict(zip(eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape, strict=True))
    return all(sizes.get(axis, 1) == 1 for axis in axes)


def _evaluate(
    jaxpr: Jaxpr, arguments: Sequence[jax.Array], variable: Any, change: Callable[[jax.Array], jax.Array]
) -> list[jax.Array]:
    """Evaluates a jaxpr in which one variable is changed."""

    def apply(eqn: JaxprEquation, values: Sequence[jax.Array]) -> list[jax.Array]:
        results = evaluate_equation(eqn, values)
        return [change(r) if v is variable else r for v, r in zip(eqn.outvars, results, strict=True)]

    return evaluate_jaxpr(jaxpr, arguments, apply)
