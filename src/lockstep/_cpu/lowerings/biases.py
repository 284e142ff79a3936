"""Biases that oneDNN's convolutions add, and whose gradients they sum, in place of passes of their own over the output.

A layer adds a bias to what its convolution has written, and the bias' gradient is a sum over the same shape. XLA reads
and writes the output for the one and reads it for the other; oneDNN does both with what it has in registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax

from lockstep._cpu.lowerings.convolution import Convolution, canonical
from lockstep._cpu.lowerings.equations import call_instead, is_plain, trace_operands
from lockstep._cpu.lowerings.foreign_convolutions import forward_call, gradient_with_sum, kernel_gradient_call
from lockstep._cpu.lowerings.kernel_gradients import one_output_kernel_gradient
from lockstep._cpu.onednn.calls import ConvolutionCall
from lockstep._cpu.onednn.custom_call import compute as compute_call
from lockstep._engine.step.jaxprs import open_jaxpr, variables, with_equations
from lockstep._types import Jaxpr, JaxprAtom, JaxprEquation

_Producers = Mapping[Any, JaxprEquation]
# In the other type that oneDNN computes, bfloat16, nothing was measured.
_DTYPE = np.dtype(np.float32)


def fuse_biases(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program, closed or not, for one device; the same object if nothing changes."""
    body = open_jaxpr(jaxpr)
    convolutions = {id(eqn): found for eqn in body.eqns if (found := _convolution(eqn)) is not None}
    if not convolutions:
        return jaxpr
    equations = _add_in_convolutions(list(body.eqns), body.outvars, convolutions)
    return with_equations(jaxpr, _sum_in_gradients(equations, [*body.invars, *body.constvars], convolutions))


def _convolution(eqn: JaxprEquation) -> Convolution | None:
    if eqn.primitive is not lax.conv_general_dilated_p or not is_plain(eqn):
        return None
    lhs, rhs = eqn.invars
    found = canonical(lhs.aval, rhs.aval, eqn.params)
    return found if found is not None and found.dtype == _DTYPE else None


def _add_in_convolutions(
    equations: list[JaxprEquation], results: list[JaxprAtom], convolutions: Mapping[int, Convolution]
) -> list[JaxprEquation]:
    """Has convolutions add what is added to their results, where nothing else needs these."""
    producers: dict[Any, JaxprEquation] = {v: eqn for eqn in equations for v in eqn.outvars}
    uses = Counter(variables([atom for eqn in equations for atom in eqn.invars] + results))
    fused: dict[int, JaxprEquation] = {}
    removed: set[int] = set()
    for eqn in equations:
        if eqn.primitive is not lax.add_p or not is_plain(eqn):
            continue
        for value, other in (eqn.invars, eqn.invars[::-1]):
            source = next((producers.get(v) for v in variables([value])), None)
            convolution = convolutions.get(id(source))
            if source is None or convolution is None or uses[value] != 1:
                continue
            call = forward_call(convolution)
            bias = _bias(other, convolution, producers)
            if call is not None and bias is not None:
                short = eqn.replace(invars=[*source.invars, bias])
                fused[id(eqn)] = call_instead(short, trace_operands(_biased(convolution, call), short))
                removed.add(id(source))
                break
    return [fused.get(id(eqn), eqn) for eqn in equations if id(eqn) not in removed]


def _bias(atom: JaxprAtom, convolution: Convolution, producers: _Producers) -> JaxprAtom | None:
    """Returns the array of one number for each channel that an atom is, repeated along the other dimensions or not."""
    rank, channel = convolution.rank + 2, convolution.out_order.index(convolution.rank + 1)
    sizes = [convolution.out[-1] if i == channel else 1 for i in range(rank)]
    for source in (atom, *_broadcast(atom, channel, producers)):
        if source.aval.dtype == convolution.dtype and list(source.aval.shape) in (sizes, sizes[channel : channel + 1]):
            return source
    return None


def _broadcast(atom: JaxprAtom, channel: int, producers: _Producers) -> list[JaxprAtom]:
    """Returns what an atom repeats, as a list of one if it repeats an array along all dimensions but the channels'."""
    for variable in variables([atom]):
        eqn = producers.get(variable)
        if eqn is not None and eqn.primitive is lax.broadcast_in_dim_p and len(eqn.invars) == 1:
            (source,), dimensions = eqn.invars, tuple(eqn.params["broadcast_dimensions"])
            if dimensions in ((channel,), tuple(range(len(atom.aval.shape)))):
                return [source]
    return []


def _biased(convolution: Convolution, call: ConvolutionCall) -> Callable[..., jax.Array]:
    call = replace(call, has_bias=True)

    def compute(lhs: jax.Array, rhs: jax.Array, bias: jax.Array) -> jax.Array:
        flat = bias.reshape(-1)
        return convolution.from_canonical(lambda lhs, rhs: compute_call(call, lhs, rhs, flat))(lhs, rhs)

    return compute


def _foreign_gradient(convolution: Convolution | None) -> tuple[Convolution, ConvolutionCall] | None:
    """Returns a convolution that oneDNN computes as the gradient of a kernel, and its call; `None` for others."""
    # That rule comes before oneDNN.
    if convolution is None or one_output_kernel_gradient(convolution) is not None:
        return None
    call = kernel_gradient_call(convolution)
    return call and (convolution, call)


def _sum_in_gradients(
    equations: list[JaxprEquation], inputs: list[Any], convolutions: Mapping[int, Convolution]
) -> list[JaxprEquation]:
    """Has gradients of kernels sum the gradient of the output over all but its channels, where a program does, too."""
    known: dict[Any, int] = dict.fromkeys(inputs, -1)
    sums: dict[tuple[Any, tuple[int, ...]], int] = {}
    for place, eqn in enumerate(equations):
        known.update(dict.fromkeys(eqn.outvars, place))
        if eqn.primitive is lax.reduce_sum_p and is_plain(eqn):
            for variable in variables(eqn.invars):
                sums.setdefault((variable, tuple(eqn.params["axes"])), place)
    changed = list[JaxprEquation | None](equations)
    for place, eqn in enumerate(equations):
        found = _foreign_gradient(convolutions.get(id(eqn)))
        if found is None:
            continue
        convolution, call = found
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
        compute = gradient_with_sum(convolution, replace(call, has_bias=True))
        changed[first] = call_instead(short, trace_operands(compute, short))
    return [eqn for eqn in changed if eqn is not None]
