"""`strategy.reduce` in a scheduled function, where a worker has one replica."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lockstep import _nest as nest
from lockstep.distribute._collectives import number_array
from lockstep.distribute._values import ReduceOp, reduce_op


def reduce_value(op: ReduceOp | str, value: Any, axis: int | None) -> Any:
    """Returns the values themselves, or their sums or means along a dimension.

    Args:
        op: SUM or MEAN. The mean of integers is a float.
        value: Arrays in any structure.
        axis: The dimension; `None` for none.
    """
    is_mean = reduce_op(op) is ReduceOp.MEAN

    def one(leaf: Any) -> Any:
        array = number_array(leaf)
        if axis is None:
            return jnp.true_divide(array, 1) if is_mean else array
        return jnp.mean(array, axis) if is_mean else jnp.sum(array, axis)

    return nest.map_structure(one, value)
