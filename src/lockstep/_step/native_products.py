"""Which products of matrices in a step are made by lockstep's own kernels (`_native`): a matter of their sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax import lax

from lockstep._step.partition.flat import Equation, Value

# Of (m, k) (k, n): how many rows, between which numbers of multiplications, and what divides the columns.
_ROWS, _LEAST, _MOST, _COLUMNS = range(8, 257), 1 << 18, 1 << 24, 32
# Of (m, k) (n, k): whole panels of rows, and so many multiplications.
_TURNED_ROWS, _TURNED_LEAST, _TURNED_MOST = (32, 64), 1 << 21, 1 << 24


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two matrices, whose axes may each be several of the operands'.

    Attributes:
        left, right: The operands.
        turned_left: Whether the left one is (k, m), not (m, k).
        turned_right: Whether the right one is (n, k), not (k, n).
        m, n, k: Sizes.
        axes: How many of the result's are the right operand's: the last ones.
        out: The result.
    """

    left: Value
    right: Value
    turned_left: bool
    turned_right: bool
    m: int
    n: int
    k: int
    axes: int
    out: Value

    @property
    def is_better(self) -> bool:
        """Whether lockstep's kernel makes it faster than XLA's."""
        count = self.m * self.n * self.k
        if self.turned_left:
            return False
        if self.turned_right:
            return self.m in _TURNED_ROWS and _TURNED_LEAST <= count <= _TURNED_MOST
        return self.m in _ROWS and _LEAST <= count <= _MOST and self.n % _COLUMNS == 0


def product_of(equation: Equation, maker: Callable[[Value], Equation | None]) -> Product | None:
    """Returns the product of float32 matrices that an equation is; `None` if it is something else.

    Args:
        equation: Any of a step.
        maker: Returns the equation that makes a value. A matrix that is transposed for the product is taken as it lies.
    """
    if equation.primitive is not lax.dot_general_p:
        return None
    params = equation.params
    (left, right), (out,) = equation.inputs, equation.outputs
    if any(v.aval.dtype.name != "float32" for v in (left, right, out)):
        return None
    if not _is_default(params.get("precision")) or params.get("out_sharding") is not None:
        return None
    (left_axes, right_axes), batched = params["dimension_numbers"]
    if any(batched) or not left_axes:
        return None
    left_first = _is_summed_first(left.aval.ndim, left_axes)
    right_first = _is_summed_first(right.aval.ndim, right_axes)
    if left_first is None or right_first is None:
        return None
    k = math.prod(left.aval.shape[axis] for axis in left_axes)
    if k == 0 or 0 in out.aval.shape:
        return None
    m, n, axes = left.aval.size // k, right.aval.size // k, right.aval.ndim - len(right_axes)
    (left, left_is_turned), (right, right_is_turned) = (_as_it_lies(v, maker(v)) for v in (left, right))
    return Product(left, right, left_first != left_is_turned, right_first == right_is_turned, m, n, k, axes, out)


def _as_it_lies(operand: Value, made: Equation | None) -> tuple[Value, bool]:
    """What an operand is made of, if that is the same matrix transposed, and whether it is."""
    if made is None or made.primitive is not lax.transpose_p or tuple(made.params["permutation"]) != (1, 0):
        return operand, False
    return made.inputs[0], True


def _is_summed_first(rank: int, axes: Sequence[int]) -> bool | None:
    """Whether the axes that are summed over come first; `None` if they are neither first nor last, or out of order."""
    count = len(axes)
    if tuple(axes) == tuple(range(rank - count, rank)):
        return False
    return True if tuple(axes) == tuple(range(count)) else None


def _is_default(precision: Any) -> bool:
    given = precision if isinstance(precision, tuple) else (precision,)
    return all(p in (None, lax.Precision.DEFAULT) for p in given)
