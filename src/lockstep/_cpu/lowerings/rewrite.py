"""Rewrites a program: where a rule knows better than XLA, a call of its operations takes an equation's place.

The rewriting is of jaxprs, so it acts in the programs that go through it and in no other of the process.

A rule looks at the operands' shapes and types and at the primitive's parameters, and returns a function that computes
the same from the operands, or `None` where it does not know better. It is a pure function of what it is given: the
processes of a cluster compile the same program, so what a machine has (cores, caches) must not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from jax import lax
from jax.extend.core import JaxprEqn, primitives

from lockstep._cpu.lowerings.arg_extremes import largest_place, smallest_place
from lockstep._cpu.lowerings.average_pooling import average_pooling
from lockstep._cpu.lowerings.batched_products import batched_product
from lockstep._cpu.lowerings.bias_gradients import fuse_bias_gradients
from lockstep._cpu.lowerings.convolution import Compute, Convolution, canonical, canonicalize
from lockstep._cpu.lowerings.covering_depthwise import covering_depthwise, covering_depthwise_kernel_gradient
from lockstep._cpu.lowerings.depthwise import depthwise, depthwise_kernel_gradient
from lockstep._cpu.lowerings.epilogues import fuse_epilogues
from lockstep._cpu.lowerings.equations import call_instead, is_plain
from lockstep._cpu.lowerings.few_groups import few_groups_gradient
from lockstep._cpu.lowerings.foreign_convolutions import foreign_convolution
from lockstep._cpu.lowerings.foreign_products import foreign_product
from lockstep._cpu.lowerings.grouped import grouped, grouped_kernel_gradient
from lockstep._cpu.lowerings.interpolation import interpolate
from lockstep._cpu.lowerings.kernel_gradients import (
    kernel_gradient,
    large_kernel_gradient,
    one_output_kernel_gradient,
    pointwise_kernel_gradient,
)
from lockstep._cpu.lowerings.leading_sums import leading_sum
from lockstep._cpu.lowerings.loop_outputs import loop_outputs
from lockstep._cpu.lowerings.loop_products import loop_products
from lockstep._cpu.lowerings.pooled_relus import move_relu_gradients
from lockstep._cpu.lowerings.pooling import max_gradient, window_max, window_sum
from lockstep._cpu.lowerings.products import product
from lockstep._cpu.lowerings.random_bits import drawn_numbers, random_bits, threefry
from lockstep._cpu.lowerings.resampling import resample
from lockstep._cpu.lowerings.row_updates import update_rows
from lockstep._cpu.lowerings.small_convolutions import few_inputs, one_output, pointwise
from lockstep._cpu.lowerings.small_pictures import large_kernel, small_picture
from lockstep._cpu.lowerings.sorting import sort
from lockstep._cpu.lowerings.transposed_gradients import foreign_transposed_gradient, transposed_kernel_gradient
from lockstep._cpu.lowerings.trigonometry import (
    arccosine,
    arcsine,
    arctangent,
    arctangent_of_quotient,
    cosine,
    sine,
    tangent,
)
from lockstep._cpu.lowerings.unit_axes import UNIT_AXES_RULES, reduction
from lockstep._cpu.lowerings.unrolled import pack_parts
from lockstep._cpu.lowerings.variances import simplify_variances
from lockstep._cpu.lowerings.windows import ISOLATE_ORIGINAL, isolate
from lockstep._engine.step.jaxprs import replace_equations, replace_subjaxprs
from lockstep._types import Aval, Jaxpr

# Their jaxprs are programs in another language than XLA's.
_CLOSED = frozenset(("pallas_call", "core_map"))
# In this order: the first that knows better is taken.
_CONVOLUTION_RULES: tuple[Callable[[Convolution], Compute | None], ...] = (
    covering_depthwise,
    covering_depthwise_kernel_gradient,
    depthwise,
    depthwise_kernel_gradient,
    grouped,
    grouped_kernel_gradient,
    pointwise_kernel_gradient,
    pointwise,
    # Its kernel is larger than its picture, too.
    transposed_kernel_gradient,
    small_picture,
    large_kernel,
    large_kernel_gradient,
    few_inputs,
    one_output,
    kernel_gradient,
    one_output_kernel_gradient,
    canonicalize,
)


def convolution_rule(lhs: Aval, rhs: Aval, **params: Any) -> Callable[..., Any] | None:
    """Rule: a convolution, for which the rules of convolutions are asked in their order."""
    return _ask(_CONVOLUTION_RULES, lhs, rhs, params)


def local_convolution_rule(lhs: Aval, rhs: Aval, **params: Any) -> Callable[..., Any] | None:
    """Rule: a convolution on one device, for which a custom call may stand, too."""
    # oneDNN transposes images, too, for the gradient of a kernel with one output.
    first = one_output_kernel_gradient, foreign_transposed_gradient, few_groups_gradient, foreign_convolution
    return _ask((*first, *_CONVOLUTION_RULES), lhs, rhs, params)


def product_rule(lhs: Aval, rhs: Aval, **params: Any) -> Any:
    """Rule: a product, of one pair of matrices or of many."""
    return product(lhs, rhs, **params) or batched_product(lhs, rhs, **params)


def local_product_rule(lhs: Aval, rhs: Aval, **params: Any) -> Any:
    """Rule: a product on one device, for which a custom call may stand, too."""
    return foreign_product(lhs, rhs, **params) or product_rule(lhs, rhs, **params)


def local_sum_rule(operand: Aval, **params: Any) -> Any:
    """Rule: a sum on one device."""
    return leading_sum(operand, **params) or reduction(lax.reduce_sum_p, operand, **params)


def local_loop_rule(*operands: Any, **params: Any) -> Any:
    """Rule: a `scan` on one device, whose outputs may come from a custom call, too."""
    return loop_products(*operands, **params) or loop_outputs(*operands, **params)


def _ask(
    rules: Sequence[Callable[[Convolution], Compute | None]], lhs: Aval, rhs: Aval, params: Mapping[str, Any]
) -> Callable[..., Any] | None:
    convolution = canonical(lhs, rhs, params)
    if convolution is None:
        return None
    compute = next((found for rule in rules if (found := rule(convolution)) is not None), None)
    return compute if compute in (None, ISOLATE_ORIGINAL) else convolution.from_canonical(compute)


RULES: Mapping[Any, Callable[..., Callable[..., Any] | None]] = {
    lax.conv_general_dilated_p: convolution_rule,
    lax.select_and_scatter_add_p: max_gradient,
    lax.reduce_window_sum_p: window_sum,
    lax.reduce_window_max_p: window_max,
    primitives.scan_p: loop_products,
    lax.dot_general_p: product_rule,
    lax.reduce_sum_p: leading_sum,
    primitives.jit_p: drawn_numbers,
    primitives.random_bits_p: random_bits,
    primitives.threefry2x32_p: threefry,
    lax.asin_p: arcsine,
    lax.acos_p: arccosine,
    lax.atan_p: arctangent,
    lax.atan2_p: arctangent_of_quotient,
}

# Of what runs on one device. XLA cannot divide a custom call, nor what takes elements by their places: it would have
# each device compute all of it. Devices would have to agree on a condition of all elements.
LOCAL_RULES: Mapping[Any, Callable[..., Callable[..., Any] | None]] = {
    **UNIT_AXES_RULES,
    **RULES,
    primitives.scan_p: local_loop_rule,
    lax.reduce_sum_p: local_sum_rule,
    lax.argmax_p: largest_place,
    lax.argmin_p: smallest_place,
    lax.sin_p: sine,
    lax.cos_p: cosine,
    lax.tan_p: tangent,
    lax.sort_p: sort,
}
LIBRARY_RULES: Mapping[Any, Callable[..., Callable[..., Any] | None]] = {
    **LOCAL_RULES,
    lax.conv_general_dilated_p: local_convolution_rule,
    lax.dot_general_p: local_product_rule,
}

# What looks at more than one equation.
PASSES: tuple[Callable[[Jaxpr], Jaxpr], ...] = (resample, average_pooling, move_relu_gradients, simplify_variances)
# The numbers of rows are data: XLA would have every device of several look for them in all batches.
# Nor does it divide what takes pixels by their places, or the parts of an array that is divided itself.
LOCAL_PASSES = (pack_parts, update_rows, interpolate, *PASSES)
LIBRARY_PASSES = (*LOCAL_PASSES, fuse_epilogues, fuse_bias_gradients)


def rewrite(jaxpr: Jaxpr, is_divided: bool = False, has_library: bool = False) -> Jaxpr:
    """Returns a program that computes the same, up to rounding.

    Args:
        jaxpr: The program.
        is_divided: Whether XLA divides it between devices, as far as it is not in a `shard_map`.
        has_library: Whether oneDNN is there.
    """
    local = _Rewriter(LIBRARY_RULES, LIBRARY_PASSES) if has_library else _Rewriter(LOCAL_RULES, LOCAL_PASSES)
    return (_Rewriter(RULES, PASSES, local) if is_divided else local).rewrite(jaxpr)


class _Rewriter:
    """Rewrites the jaxprs of one program, each of them once: jax lowers a jaxpr once however often it is called.

    Args:
        rules: By primitive.
        passes: Of whole jaxprs, before the rules.
        local: Rewrites what runs on one device, the bodies of `shard_map`; itself if that is everything.
    """

    def __init__(
        self,
        rules: Mapping[Any, Callable[..., Callable[..., Any] | None]],
        passes: Sequence[Callable[[Jaxpr], Jaxpr]],
        local: _Rewriter | None = None,
    ) -> None:
        self._rules, self._passes = rules, passes
        self._local = local or self
        # With the jaxpr itself: an identity is good only as long as its object lives.
        self._known: dict[int, tuple[Any, Any]] = {}
        # A network's layers repeat: 3 of ConvNeXtTiny's 15 gradients of 7x7 kernels are different.
        self._calls: dict[Hashable, JaxprEqn | None] = {}

    def rewrite(self, jaxpr: Jaxpr) -> Any:
        """Returns a jaxpr, closed or not, as it is to be run; the same object if nothing changes."""
        if id(jaxpr) not in self._known:
            changed = jaxpr
            for change in self._passes:
                changed = change(changed)
            self._known[id(jaxpr)] = jaxpr, replace_equations(changed, self._rewrite_equation)
        return self._known[id(jaxpr)][1]

    def _rewrite_equation(self, eqn: JaxprEqn) -> JaxprEqn:
        if eqn.primitive in self._rules and is_plain(eqn):
            call = self._call(eqn)
            if call is not None:
                return eqn.replace(primitive=call.primitive, params=call.params)
        # A `shard_map` that checks how values vary wants that of each value, which a rule does not know.
        if eqn.primitive.name in _CLOSED or eqn.params.get("check_vma"):
            return eqn
        return replace_subjaxprs(eqn, self._local.rewrite if _is_of_shards(eqn) else self.rewrite)

    def _call(self, eqn: JaxprEqn) -> JaxprEqn | None:
        """Returns a call that takes the place of all equations like this one; `None` if they stay."""
        like = eqn.primitive, tuple(v.aval for v in eqn.invars), tuple(eqn.params.items()), eqn.ctx
        try:
            known = like in self._calls
        except TypeError:  # A parameter has no hash.
            return self._make_call(eqn)
        if not known:
            self._calls[like] = self._make_call(eqn)
        return self._calls[like]

    def _make_call(self, eqn: JaxprEqn) -> JaxprEqn | None:
        compute = self._rules[eqn.primitive](*(v.aval for v in eqn.invars), **eqn.params)
        if compute is ISOLATE_ORIGINAL:
            bind = partial(eqn.primitive.bind, **eqn.primitive.get_bind_params(eqn.params))
            return call_instead(eqn, isolate(bind))
        # Rules leave parts to each other: what one makes of a convolution is another convolution.
        return None if compute is None else replace_subjaxprs(call_instead(eqn, compute), self.rewrite)


def _is_of_shards(eqn: JaxprEqn) -> bool:
    """Returns whether an equation's body is a program of one device: a `shard_map` over all axes of the mesh."""
    # Later releases of jax call them `manual_axes`.
    axes = eqn.params.get("newly_manual_axes", eqn.params.get("manual_axes", ()))
    return eqn.primitive.name == "shard_map" and set(axes) == set(eqn.params["mesh"].axis_names)
