"""Average pooling: how many places a window has, and the gradients of overlapping windows.

Where there is padding, averages are sums over windows divided by sums over windows of an array of ones: these are known
when a program is compiled. XLA computes them in each step.

jax writes the gradient of a sum over windows as a sum over windows of stride 1 of the output's gradient, with margins
around it, and zeros between its places if the windows had strides. XLA adds it up window by window, an element at a
time, and looks at the zeros, too. It is a depthwise convolution with a kernel of ones, or the gradient of one: 3x3 of
stride 2 over 8x56x56x64 0.4 ms, not 11.2, over 16x15x15x256 0.3, not 5.3; of stride 1 over 8x35x35x288 2.4, not 11.0
(float32, 2-core Xeon). For windows that do not overlap XLA's own program is as good.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._cpu.lowerings.equations import call_instead, is_plain
from lockstep._engine.step.jaxprs import is_zero, open_jaxpr, replace_equations, writer_of, writers
from lockstep._types import Jaxpr, JaxprEquation

# Of lines, pictures and volumes, with axes for examples and channels.
_RANKS = (3, 4, 5)
_FLOATS = ("float32", "float64")
# Smaller windows of stride 1 are faster as XLA's: 2x2 over 8x56x56x64 1.0 ms, not 1.7.
_LEAST_TAPS = 9

# Of what the sums' operand is made of.
Compute = Callable[[jax.Array], jax.Array]


def average_pooling(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program, closed or not; the same object if nothing changes."""
    body = open_jaxpr(jaxpr)
    if not any(eqn.primitive is lax.reduce_window_sum_p for eqn in body.eqns):
        return jaxpr
    made_by = writers(body)
    return replace_equations(jaxpr, lambda eqn: _rewrite(eqn, made_by))


def _rewrite(eqn: JaxprEquation, made_by: Mapping[Any, JaxprEquation]) -> JaxprEquation:
    """Returns an equation that computes the same; the same object if nothing better is known."""
    if eqn.primitive is not lax.reduce_window_sum_p or not is_plain(eqn):
        return eqn
    source = writer_of(eqn.invars[0], made_by)
    if source is None or not is_plain(source) or eqn.invars[0].aval.dtype.name not in _FLOATS:
        return eqn
    compute = _sums_of_one_number(source, eqn.params) or _gradient(source, eqn.params)
    # Of what the operand is made of: XLA removes the operand where nothing else reads it.
    short = eqn.replace(invars=source.invars[:1])
    return eqn if compute is None else call_instead(short, compute)


def _sums_of_one_number(source: JaxprEquation, params: Mapping[str, Any]) -> Compute | None:
    """Returns what computes sums over windows of one number, repeated everywhere; `None` if `source` makes no such."""
    if source.primitive is not lax.broadcast_in_dim_p or source.invars[0].aval.shape:
        return None
    if set(params["base_dilation"]) != {1}:
        return None
    names = "window_dimensions", "window_strides", "padding", "window_dilation"
    sizes = source.outvars[0].aval.shape
    axes = [_counts(*axis) for axis in zip(sizes, *(params[name] for name in names), strict=True)]
    out = [len(counts) for counts in axes]

    def compute(number: jax.Array) -> jax.Array:
        spread = [lax.broadcast_in_dim(counts.astype(number.dtype), out, (axis,)) for axis, counts in enumerate(axes)]
        return functools.reduce(lax.mul, spread, lax.broadcast(number, out))

    return compute


def _counts(size: int, window: int, stride: int, padding: tuple[int, int], dilation: int) -> np.ndarray:
    """Returns how many places of an axis each window has."""
    starts = np.arange(-padding[0], size + padding[1] - (window - 1) * dilation, stride)
    places = starts[:, None] + np.arange(window) * dilation
    return np.sum((places >= 0) & (places < size), axis=1)


def _gradient(source: JaxprEquation, params: Mapping[str, Any]) -> Compute | None:
    """Returns what computes sums over overlapping windows, given their results' gradient.

    `None` if `source` does not put that in margins of zeros, or XLA's own program is as good.
    """
    steps = {n for name in ("window_strides", "base_dilation", "window_dilation") for n in params[name]}
    if source.primitive is not lax.pad_p or steps != {1} or np.any(params["padding"]) or not is_zero(source.invars[1]):
        return None
    window, margins = params["window_dimensions"], source.params["padding_config"]
    rank, strides = len(window), [zeros + 1 for _, _, zeros in margins]
    overlap = any(size > stride for size, stride in zip(window, strides, strict=True))
    if not overlap or (max(strides) == 1 and math.prod(window) < _LEAST_TAPS) or rank not in _RANKS:
        return None
    is_alone = [(size, *map(int, margin)) == (1, 0, 0, 0) for size, margin in zip(window, margins, strict=True)]
    channel = next((axis for axis in (rank - 1, 1) if is_alone[axis]), None)
    if channel is None or not is_alone[0] or any(min(low, high) < 0 for low, high, _ in margins):
        return None
    space = [axis for axis in range(1, rank) if axis != channel]
    letters = "XYZ"[: len(space)]
    layout = f"NC{letters}" if channel == 1 else f"N{letters}C"

    def convolve(x: jax.Array) -> jax.Array:
        channels = x.shape[channel]
        return lax.conv_general_dilated(
            x,
            jnp.ones((*(window[axis] for axis in space), 1, channels), x.dtype),
            (1,) * len(space),
            [(int(margins[axis][0]), int(margins[axis][1])) for axis in space],
            lhs_dilation=[strides[axis] for axis in space],
            dimension_numbers=(layout, f"{letters}IO", layout),
            feature_group_count=channels,
        )

    return convolve
