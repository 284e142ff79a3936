"""Products of matrices that sum over leading axes, as the gradients of dense layers' kernels do.

Such a gradient sums over the axes of examples and of times. jax names both, and XLA copies an operand so that they come
last: the copy becomes a part of what computes the operand, so that a layer norm's gradient is computed column by
column, from one value of each row at a time. Named as one axis, which takes no copy, they may come first. In a step of
a transformer (6 layers of 128, 96 tokens, batch 32) the copies took an eighth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from lockstep._cpu.lowerings.windows import ISOLATE_ORIGINAL
from lockstep._types import Aval

_TYPES = ("float32", "float64", "bfloat16")
# A sum over many rows runs up to four times as fast as the transposed one, in which XLA makes it when a transposition
# follows, if the second operand has a few times as many columns, or if the first has few: Eigen's kernels take 48
# columns of the second at a time, and of 16 they make half as many products in a second as of 32 (75 and 142 GFLOP/s,
# 2-core EPYC with AVX-512). It takes longer to transpose a large result.
_MANY_ROWS = 1024
_WIDE = 4
_NARROW = 32
_MOST_RESULTS_PER_ROW = 128

Axes = Sequence[int]


def product(
    lhs: Aval, rhs: Aval, *, dimension_numbers: tuple[tuple[Axes, Axes], tuple[Axes, Axes]], **options: Any
) -> Any:
    """Rule: a `dot_general` over leading axes of both operands."""
    (left, right), (left_batch, right_batch) = dimension_numbers
    if lhs.dtype.name not in _TYPES or options.get("out_sharding") is not None or left_batch or right_batch:
        return None
    count = len(left)
    leads = tuple(left) == tuple(right) == tuple(range(count))
    return _sum_over_rows(lhs, rhs, count, options) if leads and count < min(lhs.ndim, rhs.ndim) else None


def _sum_over_rows(lhs: Aval, rhs: Aval, count: int, options: dict[str, Any]) -> Any:
    """Sums over the leading axes, as one: the gradient of a kernel, given those of outputs and the inputs."""
    rows = math.prod(lhs.shape[:count])
    columns, others = math.prod(lhs.shape[count:]), math.prod(rhs.shape[count:])
    if count == 1:
        is_wide = others >= _WIDE * columns or columns < min(others, _NARROW)
        is_long = rows >= _MANY_ROWS and columns * others <= _MOST_RESULTS_PER_ROW * rows
        return ISOLATE_ORIGINAL if is_wide and is_long and lhs.dtype == "float32" else None

    def compute(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = a.reshape(rows, columns), b.reshape(rows, others)
        found = lax.dot_general(a, b, (((0,), (0,)), ((), ())), **options)
        return found.reshape(*lhs.shape[count:], *rhs.shape[count:])

    return compute
