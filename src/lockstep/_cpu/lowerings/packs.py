"""Packs, parts of an array in their order: where they come from, what is computed of them, and what becomes of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Literal, primitives

from lockstep._cpu.lowerings.equations import Flow, is_plain
from lockstep._engine.step.jaxprs import bind, equations, evaluate_equation, is_zero, subjaxprs, variables
from lockstep._types import JaxprEquation

# What it is worth it for: they are many operations each.
LARGE = (lax.conv_general_dilated_p, lax.dot_general_p)
ADDITIONS = (lax.add_p, primitives.add_jaxvals_p)
# The sum of what they make is what they make of the sum.
MOVES = (lax.reshape_p, lax.transpose_p, lax.rev_p, lax.squeeze_p)
_WINDOWS = ("reduce_window_max", "reduce_window_sum", "reduce_window_min", "select_and_scatter_add")
# All that a layer does to what it is called with, but for random numbers, loops and what changes something.
_MAY_BE_PACKED = frozenset(
    (
        *(p.name for p in (*LARGE, *ADDITIONS)),
        *_WINDOWS,
        *("abs", "and", "broadcast_in_dim", "ceil", "clamp", "concatenate", "convert_element_type", "copy", "cos"),
        *("custom_jvp_call", "div", "eq", "erf", "exp", "exp2", "expand_dims", "expm1", "floor", "ge", "gt"),
        *("integer_pow", "is_finite", "jit", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg"),
        *("not", "or", "pad", "pow", "reduce_max", "reduce_min", "reduce_sum", "reshape", "rev", "round", "rsqrt"),
        *("select_n", "sign", "sin", "slice", "sqrt", "square", "squeeze", "stop_gradient", "sub", "tanh"),
        "transpose",
    )
)


@dataclass(frozen=True, eq=False)
class Pack:
    """Variables of which each is the same of another part of an array."""

    parts: tuple[Any, ...]


def may_be_packed(eqn: JaxprEquation) -> bool:
    """Returns whether an equation, with all that it calls, may be computed for all parts of a pack at once."""
    inside = (inner for called in subjaxprs(eqn) for inner in equations(called))
    return is_plain(eqn) and all(e.primitive.name in _MAY_BE_PACKED for e in (eqn, *inside))


def find_parts(body: Any, flow: Flow) -> dict[int, tuple[Any, int, list[Any], list[JaxprEquation]]]:
    """Returns where a program takes all parts of an array of floating-point numbers along an axis.

    Returns:
        By the identity of the first equation: the array, the axis, the parts, and the equations.
    """
    found: dict[int, tuple[Any, int, list[Any], list[JaxprEquation]]] = {}
    slices: dict[tuple[Any, int], dict[int, tuple[JaxprEquation, JaxprEquation]]] = defaultdict(dict)
    for eqn in body.eqns:
        # Keys of random numbers, which are often divided into parts, are of other types.
        dtype = getattr(eqn.invars[0].aval, "dtype", None) if eqn.invars else None
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            continue
        if eqn.primitive is lax.unstack_p:
            found[id(eqn)] = eqn.invars[0], eqn.params["axis"], list(eqn.outvars), [eqn]
        axis = _sliced_axis(eqn)
        readers = flow.readers_alone(eqn.outvars[0]) if axis is not None else ()
        if axis is None or len(readers) != 1 or readers[0].primitive is not lax.squeeze_p:
            continue
        if tuple(readers[0].params["dimensions"]) == (axis,):
            slices[eqn.invars[0], axis].setdefault(eqn.params["start_indices"][axis], (eqn, readers[0]))
    for (source, axis), pairs in slices.items():
        if len(pairs) == source.aval.shape[axis]:
            equations = [eqn for pair in pairs.values() for eqn in pair]
            found[id(equations[0])] = source, axis, [pairs[n][1].outvars[0] for n in range(len(pairs))], equations
    return found


def _sliced_axis(eqn: JaxprEquation) -> int | None:
    """Returns the axis along which an equation takes one place of several, and everything along all others."""
    if eqn.primitive is not lax.slice_p or isinstance(eqn.invars[0], Literal) or not is_plain(eqn):
        return None
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    axes = [axis for axis, sizes in enumerate(zip(before, after, strict=True)) if sizes[0] != sizes[1]]
    return axes[0] if len(axes) == 1 and after[axes[0]] == 1 else None


class Sums:
    """Sums of several terms, which programs write as additions of two.

    Args:
        body: A jaxpr that is not closed.
        flow: Its flow.

    Attributes:
        last: The last addition of the sum that an addition is a part of, by the identity of that one; not of itself.
        terms: The terms of sums, by the identity of their last addition.
    """

    def __init__(self, body: Any, flow: Flow) -> None:
        self.last: dict[int, JaxprEquation] = {}
        self.terms: dict[int, list[Any]] = {}
        self._flow = flow
        known: dict[Any, list[Any]] = {}
        for eqn in body.eqns:
            if eqn.primitive not in ADDITIONS or len(list(variables(eqn.invars))) < len(eqn.invars):
                continue
            (result,) = eqn.outvars
            known[result] = [term for atom in eqn.invars for term in known.pop(atom, [atom])]
            last = self._last_addition(result)
            if last is not None:
                self.last[id(eqn)] = last
            else:
                self.terms[id(eqn)] = known.pop(result)

    def are_terms(self, parts: Sequence[Any]) -> bool:
        """Returns whether variables are terms of the same sum, moved or not, and nothing else reads them."""
        last = [self._last_addition(self._moved(part)) for part in parts]
        return last[0] is not None and all(addition is last[0] for addition in last)

    def _moved(self, variable: Any) -> Any:
        """Returns what becomes of a variable by moves that alone read it."""
        readers = self._flow.readers_alone(variable)
        while len(readers) == 1 and readers[0].primitive in MOVES:
            (variable,) = readers[0].outvars
            readers = self._flow.readers_alone(variable)
        return variable

    def _addition_of(self, variable: Any) -> JaxprEquation | None:
        """Returns the addition that alone reads a variable, once."""
        readers = self._flow.readers_alone(variable)
        if len(readers) != 1 or readers[0].primitive not in ADDITIONS:
            return None
        first, second = readers[0].invars
        return None if first is second or isinstance(first, Literal) or isinstance(second, Literal) else readers[0]

    def _last_addition(self, variable: Any) -> JaxprEquation | None:
        last = addition = self._addition_of(variable)
        while addition is not None:
            last, addition = addition, self._addition_of(addition.outvars[0])
        return last


def padded_axis(eqn: JaxprEquation) -> int | None:
    """Returns the axis of one element that an equation pads with zeros, so that it has several."""
    if eqn.primitive is not lax.pad_p or not is_zero(eqn.invars[1]) or not is_plain(eqn):
        return None
    config = eqn.params["padding_config"]
    axes = [axis for axis, padding in enumerate(config) if tuple(padding) != (0, 0, 0)]
    if len(axes) != 1 or min(config[axes[0]][:2]) < 0 or eqn.invars[0].aval.shape[axes[0]] != 1:
        return None
    return axes[0]


def lay(pack: jax.Array, axis: int) -> jax.Array:
    """Returns the parts of a pack, which have one element along an axis, beside each other along it."""
    return jnp.moveaxis(pack.squeeze(axis + 1), 0, axis)


def compute_packs(eqn: JaxprEquation, operands: Sequence[Any], are_packs: Sequence[bool]) -> list[jax.Array]:
    """Returns what an equation makes of all parts of its operands, as far as these are packs."""
    if eqn.primitive.name in _WINDOWS and all(are_packs) and _leaves_first_axis(eqn):
        (result,) = evaluate_equation(eqn, [x.reshape(-1, *x.shape[2:]) for x in operands])
        return [result.reshape(operands[0].shape[0], -1, *result.shape[1:])]
    axes = [0 if is_pack else None for is_pack in are_packs]
    return jax.vmap(lambda *values: evaluate_equation(eqn, values), axes)(*operands)


def _leaves_first_axis(eqn: JaxprEquation) -> bool:
    """Returns whether windows are of one element along the first axis: parts may follow each other there."""
    params = eqn.params
    dilations = [params[name][0] for name in ("base_dilation", "window_dilation") if name in params]
    sizes = [params["window_dimensions"][0], params["window_strides"][0], *dilations]
    return all(size == 1 for size in sizes) and tuple(params["padding"][0]) == (0, 0)


def contract(eqn: JaxprEquation, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
    """Returns the sum, over all parts, of what a convolution or a product makes of two packs."""
    params = dict(eqn.params)
    if eqn.primitive is lax.dot_general_p:
        contracted, batch = params["dimension_numbers"]
        later = [[tuple(axis + 1 for axis in axes) for axes in pair] for pair in (contracted, batch)]
        params["dimension_numbers"] = tuple((0, *axes) for axes in later[0]), tuple(later[1])
    else:
        # A convolution sums over the features of a group, and so over those of all parts.
        numbers = params["dimension_numbers"]
        lhs = _merge(lhs, numbers.lhs_spec[1], params["feature_group_count"])
        rhs = _merge(rhs, numbers.rhs_spec[1], 1)
    with eqn.ctx.manager:
        return bind(eqn.primitive, [lhs, rhs], params)[0]


def _merge(pack: jax.Array, axis: int, groups: int) -> jax.Array:
    """Returns the parts of a pack one after the other along an axis, within each of its groups."""
    shape = pack.shape[1:]
    grouped = pack.reshape(-1, *shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    return jnp.moveaxis(grouped, 0, axis + 1).reshape(*shape[:axis], -1, *shape[axis + 1 :])
