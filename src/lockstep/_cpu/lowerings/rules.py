"""Which rules are tried for which primitive, in order.

A rule looks at the operands' shapes and types and at the primitive's parameters, and returns a function that computes
the same from the operands, or `None` where it does not know better. It is a pure function of what it is given: the
processes of a cluster compile the same program, so what a machine has (cores, caches) must not decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import primitives

from lockstep._cpu.lowerings.canonical import canonicalised
from lockstep._cpu.lowerings.depthwise import depthwise
from lockstep._cpu.lowerings.depthwise_kernel import depthwise_kernel_gradient
from lockstep._cpu.lowerings.few_inputs import few_inputs
from lockstep._cpu.lowerings.kernel_gradient import kernel_gradient
from lockstep._cpu.lowerings.loop_products import loop_products
from lockstep._cpu.lowerings.one_output import one_output
from lockstep._cpu.lowerings.pointwise import pointwise
from lockstep._cpu.lowerings.pointwise_kernel import pointwise_kernel_gradient
from lockstep._cpu.lowerings.pooling import max_gradient
from lockstep._cpu.lowerings.reduction_windows import window_max, window_sum
from lockstep._cpu.lowerings.transposed_kernel import transposed_kernel_gradient

Rule = Callable[..., Callable[..., Any] | None]


def table() -> dict[Any, tuple[Rule, ...]]:
    """Returns the rules of each primitive."""
    return {
        jax.lax.conv_general_dilated_p: (
            depthwise,
            depthwise_kernel_gradient,
            pointwise_kernel_gradient,
            pointwise,
            few_inputs,
            one_output,
            kernel_gradient,
            transposed_kernel_gradient,
            canonicalised,
        ),
        jax.lax.select_and_scatter_add_p: (max_gradient,),
        jax.lax.reduce_window_sum_p: (window_sum,),
        jax.lax.reduce_window_max_p: (window_max,),
        primitives.scan_p: (loop_products,),
    }
