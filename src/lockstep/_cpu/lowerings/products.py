"""Products of matrices in the order and the form in which XLA need not copy operands: kernels' gradients, attention.

XLA's CPU compiler makes products of two matrices, or of batches of them, and copies whatever has another form. A copy
becomes a part of what computes the operand, so that a layer norm's gradient is computed column by column, a value from
each row at a time.

The gradient of a dense layer's kernel sums over the axes of examples and of times. Of these jax names two, and XLA
copies an operand so that they come last. Named as one axis, which takes no copy, they may come first. In a step of a
transformer (6 layers of 128, 96 tokens, batch 32) the copies took an eighth.

Attention multiplies batches of matrices (examples, heads) of which one lies ready and the other one does not: queries,
keys and values have their heads behind their times. That one has to be copied; it may as well become the operand that
leaves the other as it is. Of 8 examples of 512 tokens and 4 heads of 16 the values' sum took 9.1 ms of CPU time and
takes 3.8, the keys' gradient 19 and 5.5 (2-core Xeon with AVX-512).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from lockstep._cpu.lowerings.windows import ISOLATE_ORIGINAL
from lockstep._types import Aval

_TYPES = ("float32", "float64")
# A product of as many rows and more times as many columns runs up to four times as fast as the transposed one, in which
# XLA makes it when a transposition follows; smaller ones are over sooner than the branch that keeps XLA from that pays.
_WIDE = 4
_LEAST_WIDE = 1 << 20
# A batch of sums over rows is better made transposed where the other operand has few columns, or much fewer.
_FEW_COLUMNS = 32
_FEWER = 8

Axes = Sequence[int]


def product(
    lhs: Aval, rhs: Aval, *, dimension_numbers: tuple[tuple[Axes, Axes], tuple[Axes, Axes]], **options: Any
) -> Any:
    """Rule: a `dot_general` over leading axes, or over batches of which one operand has the axes in another order."""
    (left, right), (left_batch, right_batch) = dimension_numbers
    if lhs.dtype.name not in _TYPES or options.get("out_sharding") is not None or 0 in (*lhs.shape, *rhs.shape):
        return None
    if left_batch:
        return _batched(lhs, rhs, dimension_numbers, options)
    count = len(left)
    leads = tuple(left) == tuple(right) == tuple(range(count))
    return _sum_over_rows(lhs, rhs, count, options) if leads and count < min(lhs.ndim, rhs.ndim) else None


def _sum_over_rows(lhs: Aval, rhs: Aval, count: int, options: dict[str, Any]) -> Any:
    """Sums over the leading axes, as one: the gradient of a kernel, given those of outputs and the inputs."""
    rows = math.prod(lhs.shape[:count])
    columns, others = math.prod(lhs.shape[count:]), math.prod(rhs.shape[count:])
    if count == 1:
        is_wide = others >= _WIDE * columns and rows * columns * others >= _LEAST_WIDE
        return ISOLATE_ORIGINAL if is_wide else None

    def compute(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = a.reshape(rows, columns), b.reshape(rows, others)
        found = lax.dot_general(a, b, (((0,), (0,)), ((), ())), **options)
        return found.reshape(*lhs.shape[count:], *rhs.shape[count:])

    return compute


def _batched(lhs: Aval, rhs: Aval, numbers: Any, options: dict[str, Any]) -> Callable[..., Any] | None:
    """Swaps the operands where the one that lies ready would have to be copied, too."""
    (left, right), (left_batch, right_batch) = numbers
    batch = len(left_batch)
    if not (len(left) == len(right) == 1 and lhs.ndim == rhs.ndim == batch + 2):
        return None
    left_is_ready, right_is_ready = (tuple(axes) == tuple(range(batch)) for axes in (left_batch, right_batch))
    if left_is_ready == right_is_ready:
        return None
    # Sums over the last axis of the first operand and the first axis of the second one take no copy.
    if right_is_ready:
        is_better = right[0] == batch + 1
    else:
        columns = next(s for i, s in enumerate(rhs.shape) if i not in (*right, *right_batch))
        few = columns <= _FEW_COLUMNS or lhs.shape[batch + 1] >= _FEWER * columns
        is_better = left[0] == batch and few
    if not is_better:
        return None
    order = (*range(batch), batch + 1, batch)

    def compute(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(b, a, ((right, left), (right_batch, left_batch)), **options).transpose(order)

    return compute
