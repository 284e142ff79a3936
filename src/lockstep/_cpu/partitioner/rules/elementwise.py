"""Rules for what is computed element by element, or for each index of the first axes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout, sharded
from lockstep._cpu.partitioner.rules.base import Call, Decision, does_not_grow, is_summand, linear, passes_sums, rule

_UNARY = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clz"),
    *("conj", "convert_element_type", "copy", "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp"),
    *("exp2", "expm1", "floor", "imag", "integer_pow", "is_finite", "lgamma", "log", "log1p", "log2", "logistic"),
    *("not", "population_count", "real", "reduce_precision", "round", "rsqrt", "sign", "sin", "sinh", "sqrt"),
    *("neg", "one_minus_square", "square", "stop_gradient", "tan", "tanh", "device_put", "name"),
)
_BINARY = (
    *("add", "add_any", "and", "atan2", "complex", "div", "eq", "eq_to", "ge", "gt", "igamma", "igamma_grad_a"),
    *("igammac", "le", "le_to", "lt", "lt_to", "max", "min", "mul", "mulhi", "ne", "nextafter", "or", "polygamma"),
    *("pow", "rem", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sub"),
    *("xor", "zeta"),
)
_MORE = ("clamp", "polynomial", "regularized_incomplete_beta", "select_n", "threefry2x32")
# How many of the last axes belong to one element.
_LAST_AXES = {
    **dict.fromkeys(("cholesky", "eigh", "lu", "qr", "svd", "schur", "geqrf", "eig", "triangular_solve"), 2),
    **dict.fromkeys(("lu_pivots_to_permutation", "random_wrap"), 1),
    **dict.fromkeys(("random_unwrap", "random_split", "random_bits", "random_fold_in", "random_seed"), 0),
    **dict.fromkeys(("random_gamma", "random_clone"), 0),
}


@rule(*_UNARY, *_BINARY, *_MORE, sliceable=True)
def elementwise(call: Call) -> Decision | None:
    """Shards all inputs alike; what has one element along the axis, or no axes, is replicated."""
    axis = _axis(call) if call.wanted_axis is None else call.wanted_axis
    size = call.out_shape()[axis]
    divided = sharded(axis)
    needs: list[Layout] = []
    for value in call.equation.inputs:
        shape = value.aval.shape
        needs.append(divided if shape and shape[axis] == size else REPLICATED)
    return Decision(needs, [divided] * len(call.equation.outputs))


def _axis(call: Call) -> int:
    """Returns the axis that most bytes are sharded along already, the first of equals."""
    axes = {layout.axis for layout in call.layouts if layout.is_sharded}
    if len(axes) == 1:
        return axes.pop()
    return max(sorted(axes), key=lambda a: sum(call.size(i) for i, lies in enumerate(call.layouts) if lies.axis == a))


@rule("bitcast_convert_type", sliceable=True)
def bitcast(call: Call) -> Decision | None:
    """Shards as other operations do, while elements keep their width."""
    return elementwise(call) if call.shape(0) == call.out_shape() else None


@rule("optimization_barrier")
@linear("optimization_barrier")
def barrier(call: Call) -> Decision | None:
    """Passes each input on as it is."""
    return Decision(call.layouts, call.layouts)


@linear("neg", "copy", "stop_gradient", "real", "imag", "conj", "name")
def of_each_summand(call: Call) -> Decision | None:
    """Applies f to each summand: f(a + b) = f(a) + f(b)."""
    return passes_sums(call)


@linear("add", "add_any", "sub")
def added_sums(call: Call) -> Decision | None:
    """Adds summands of one shape; a replicated value other than zero would be added once per replica."""
    return passes_sums(call) if does_not_grow(call, range(len(call.layouts))) else None


@linear("mul")
def scaled_sum(call: Call) -> Decision | None:
    """Scales a summand by a number; times an infinity that was computed, one that is zero would become NaN."""
    # So constants only: whether a computed factor is finite is not known here.
    for number in range(2):
        if call.layouts[1 - number] == PARTIAL and _is_finite(call.equation.inputs[number]):
            return Decision(call.layouts, [PARTIAL])
    return None


@linear("div")
def divided_sum(call: Call) -> Decision | None:
    """Divides a summand by a number; division of integers is not linear."""
    divisor = call.equation.inputs[1]
    inexact = jnp.issubdtype(divisor.aval.dtype, jnp.inexact)
    # By zero, summands that are zero would be NaN where one device has infinity.
    usable = inexact and not divisor.is_zero and _is_finite(divisor)
    return Decision(call.layouts, [PARTIAL]) if usable else None


def _is_finite(value: object) -> bool:
    number = getattr(value, "value", None)
    return number is not None and np.ndim(number) == 0 and bool(np.isfinite(number))


@linear("select_n")
def chosen_sums(call: Call) -> Decision | None:
    """Chooses summands alike on all replicas."""
    cases = range(1, len(call.layouts))
    if call.layouts[0] != REPLICATED or not all(is_summand(call, i) for i in cases):
        return None
    return Decision([REPLICATED, *[PARTIAL] * len(cases)], [PARTIAL])


@rule(*_LAST_AXES)
def shard_batch_axis(call: Call) -> Decision | None:
    """Shards an axis in front of those that belong to one element."""
    return _in_front(call, _LAST_AXES[call.equation.primitive.name])


@rule("fft")
def fft(call: Call) -> Decision | None:
    """Shards other axes than those transformed."""
    return _in_front(call, len(call.params["fft_lengths"]))


def _in_front(call: Call, last_axes: int) -> Decision | None:
    first = call.sharded_input()
    if first is None:
        return None
    layout, shape = call.layouts[first], call.shape(first)
    if layout.axis >= len(shape) - last_axes or any(len(v.aval.shape) != len(shape) for v in call.equation.inputs):
        return None
    inside = [call.shape(i)[layout.axis] == shape[layout.axis] for i in range(len(call.layouts))]
    outside = [o.aval.shape[layout.axis] == shape[layout.axis] for o in call.equation.outputs]
    if not all(inside) or not all(outside):
        return None
    return Decision([sharded(layout.axis)] * len(call.layouts), [layout] * len(call.equation.outputs))
