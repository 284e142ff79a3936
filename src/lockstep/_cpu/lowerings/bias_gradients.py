"""Gradients of biases, summed along with those of kernels, in place of a pass of their own over the output.

The gradient of a convolution's bias is a sum over the gradient of its output, which the gradient of its kernel reads,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
from jax import lax

from lockstep._cpu.lowerings.convolution import Convolution, float32_convolution
from lockstep._cpu.lowerings.equations import call_instead, is_plain
from lockstep._cpu.lowerings.foreign_convolutions import gradient_with_sum, kernel_gradient_call
from lockstep._cpu.lowerings.kernel_gradients import kernel_gradient_with_sum, one_output_kernel_gradient
from lockstep._engine.step.jaxprs import open_jaxpr, variables, with_equations
from lockstep._types import Jaxpr, JaxprEquation

# Computes the gradients of a kernel and of a bias, of the operands of the former.
_WithSum = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def fuse_bias_gradients(jaxpr: Jaxpr) -> Jaxpr:
    """Has gradients of kernels sum the gradient of the output over all but its channels, where a program does, too.

    Returns a program, closed or not, for one device; the same object if nothing changes.
    """
    body = open_jaxpr(jaxpr)
    gradients = {id(eqn): found for eqn in body.eqns if (found := _kernel_gradient(eqn)) is not None}
    if not gradients:
        return jaxpr
    return with_equations(jaxpr, _sum_in_gradients(list(body.eqns), [*body.invars, *body.constvars], gradients))


def _kernel_gradient(eqn: JaxprEquation) -> tuple[Convolution, _WithSum] | None:
    """Returns a convolution that is the gradient of a kernel, and what sums along with it; `None` for others."""
    convolution = float32_convolution(eqn)
    # That rule comes before these.
    if convolution is None or one_output_kernel_gradient(convolution) is not None:
        return None
    call = kernel_gradient_call(convolution)
    if call is not None:
        return convolution, _as_written(convolution, gradient_with_sum(replace(call, has_bias=True)))
    compute = kernel_gradient_with_sum(convolution)
    return None if compute is None else (convolution, _as_written(convolution, compute))


def _as_written(convolution: Convolution, compute: _WithSum) -> _WithSum:
    """Returns what computes the same from operands as the program has them, not in canonical order."""

    def compute_as_written(lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, jax.Array]:
        operands = lax.transpose(lhs, convolution.lhs_order), lax.transpose(rhs, convolution.rhs_order)
        kernel, bias = compute(*operands)
        return lax.transpose(kernel, convolution.out_order), bias

    return compute_as_written


def _sum_in_gradients(
    equations: list[JaxprEquation], inputs: list[Any], gradients: Mapping[int, tuple[Convolution, _WithSum]]
) -> list[JaxprEquation]:
    known: dict[Any, int] = dict.fromkeys(inputs, -1)
    sums: dict[tuple[Any, tuple[int, ...]], int] = {}
    for place, eqn in enumerate(equations):
        known.update(dict.fromkeys(eqn.outvars, place))
        if eqn.primitive is lax.reduce_sum_p and is_plain(eqn):
            for variable in variables(eqn.invars):
                sums.setdefault((variable, tuple(eqn.params["axes"])), place)
    changed = list[JaxprEquation | None](equations)
    for place, eqn in enumerate(equations):
        if id(eqn) not in gradients:
            continue
        convolution, compute = gradients[id(eqn)]
        channel = convolution.rhs_order[-1]
        axes = tuple(i for i in range(convolution.rank + 2) if i != channel)
        sum_place = next((sums[v, axes] for v in variables(eqn.invars[1:]) if (v, axes) in sums), None)
        if sum_place is None:
            continue
        first = min(place, sum_place)
        # Both are computed where the first of them was: what they are computed of must be there.
        if changed[sum_place] is not equations[sum_place] or any(known[v] >= first for v in variables(eqn.invars)):
            continue
        short = eqn.replace(outvars=[*eqn.outvars, *equations[sum_place].outvars])
        changed[place] = changed[sum_place] = None
        changed[first] = call_instead(short, compute)
    return [eqn for eqn in changed if eqn is not None]
