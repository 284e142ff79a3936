"""Products of many pairs of matrices, as attention has them, in the order in which the large operand lies in memory.

XLA's kernels multiply rows of the first operand by columns of the second. Differentiation and `einsum` write products
that read an operand otherwise: then XLA copies it, and the copy becomes a part of what computes the operand, so that a
softmax over 1,024 places writes each number a row apart from the last one. Of the two orders of the operands one often
reads the large operand as it lies; what is copied is then small, as the queries are beside the attention's weights.

Causal attention of `jax.nn` and its gradient (batch x places x heads x size, ms, float32, 2-core EPYC with AVX-512),
XLA's own, and with this and `unit_axes`: 16x64x8x32 2.5 and 2.2, 32x96x8x16 11.3 and 7.4, 64x65x4x16 5.2 and 4.3,
16x197x3x64 15.4 and 12.3, 8x512x4x16 42 and 19, 2x1024x4x32 65 and 23. Gradients of 4,096 products of 8x8: 2.5 and 0.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax

from lockstep._types import Aval

_TYPES = ("float32", "float64")

Axes = Sequence[int]


@dataclass(frozen=True)
class _Operand:
    """An operand, and its axes of more than one element.

    Attributes:
        shape: All of its axes.
        batch: The axes that both operands have in common.
        free: Those that the result has from it alone.
        contracted: Those that are summed over.
    """

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    free: tuple[int, ...]
    contracted: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def rows(self) -> tuple[int, ...]:
        """The axes in the order in which its rows are what is multiplied."""
        return (*self.batch, *self.free, *self.contracted)

    @property
    def columns(self) -> tuple[int, ...]:
        """The axes in the order in which its columns are."""
        return (*self.batch, *self.contracted, *self.free)

    def lies_as(self, axes: tuple[int, ...]) -> bool:
        """Returns whether memory has the elements in that order."""
        return axes == tuple(sorted(axes))

    def sizes(self, axes: tuple[int, ...]) -> list[int]:
        """Returns how long axes are."""
        return [self.shape[axis] for axis in axes]


def batched_product(
    lhs: Aval, rhs: Aval, *, dimension_numbers: tuple[tuple[Axes, Axes], tuple[Axes, Axes]], **options: Any
) -> Callable[..., jax.Array] | None:
    """Rule: a `dot_general` of many pairs of matrices."""
    (left, right), (left_batch, right_batch) = dimension_numbers
    if lhs.dtype.name not in _TYPES or options.get("out_sharding") is not None or 0 in (lhs.size, rhs.size):
        return None
    first, second = _operand(lhs.shape, left_batch, left), _operand(rhs.shape, right_batch, right)
    if not first.batch:
        return None
    result = _size_of_result(first, second)
    is_reduced = result <= max(first.size, second.size)
    costs = _cost(first, second), _cost(second, first) + (0 if is_reduced else result)
    exchanged = costs[1] < costs[0] or (costs[1] == costs[0] and second.size > first.size)
    row, column = (second, first) if exchanged else (first, second)
    if not exchanged and row.lies_as(row.rows) and (column.lies_as(column.columns) or column.lies_as(column.rows)):
        return None

    def compute(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = (b, a) if exchanged else (a, b)
        count = len(row.batch)
        batch = tuple(range(count))
        # The second operand may also lie as rows, which XLA's kernels read as well.
        reads_rows = column.lies_as(column.rows)
        a, b = _matrices(row, a, is_of_rows=True), _matrices(column, b, is_of_rows=reads_rows)
        numbers = (((count + 1,), (count + 1 if reads_rows else count,)), (batch, batch))
        found = lax.dot_general(a, b, numbers, **(_exchange_precision(options) if exchanged else options))
        # XLA would exchange the operands of a product whose result is transposed, here or later.
        found = lax.optimization_barrier(found) if is_reduced else found
        if exchanged:
            found = lax.transpose(found, (*batch, count + 1, count))
        return found.reshape(_result_shape(lhs.shape, rhs.shape, dimension_numbers))

    return compute


def _operand(shape: tuple[int, ...], batch: Axes, contracted: Axes) -> _Operand:
    free = [axis for axis in range(len(shape)) if axis not in batch and axis not in contracted]
    parts = [tuple(axis for axis in axes if shape[axis] > 1) for axes in (batch, free, contracted)]
    return _Operand(shape, *parts)


def _cost(row: _Operand, column: _Operand) -> int:
    """Returns how many elements are copied if the rows of one operand are multiplied by the columns of the other."""
    is_read = column.lies_as(column.columns) or column.lies_as(column.rows)
    return (0 if row.lies_as(row.rows) else row.size) + (0 if is_read else column.size)


def _size_of_result(first: _Operand, second: _Operand) -> int:
    return math.prod([*first.sizes(first.batch), *first.sizes(first.free), *second.sizes(second.free)])


def _matrices(operand: _Operand, x: jax.Array, is_of_rows: bool) -> jax.Array:
    """Returns an operand's matrices: (*batch, free, contracted), or with the last two exchanged."""
    sides = [math.prod(operand.sizes(part)) for part in (operand.free, operand.contracted)]
    shape = (*operand.sizes(operand.batch), *(sides if is_of_rows else sides[::-1]))
    kept = [axis for axis, size in enumerate(operand.shape) if size > 1]
    order = [kept.index(axis) for axis in (operand.rows if is_of_rows else operand.columns)]
    x = x.reshape(operand.sizes(tuple(kept)))
    if order == list(range(len(order))):
        return x.reshape(shape)
    x = lax.transpose(x, order).reshape(shape)
    # XLA would read columns, not transpose.
    return lax.optimization_barrier(x) if is_of_rows and operand.lies_as(operand.columns) else x


def _exchange_precision(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a product whose operands are exchanged: each may have a precision of its own."""
    precision = options.get("precision")
    return {**options, "precision": precision[::-1]} if isinstance(precision, tuple) else options


def _result_shape(lhs: tuple[int, ...], rhs: tuple[int, ...], numbers: Any) -> list[int]:
    (left, right), (left_batch, right_batch) = numbers
    first = [size for axis, size in enumerate(lhs) if axis not in (*left_batch, *left)]
    second = [size for axis, size in enumerate(rhs) if axis not in (*right_batch, *right)]
    return [*(lhs[axis] for axis in left_batch), *first, *second]
