"""Sums of tables' gradients by rows: replicas exchange what their lookups add, not tables that are mostly zeros.

The gradient of a lookup in a table of N rows is zero but in the rows that the batch has looked up. TensorFlow's
strategies gather such an `IndexedSlices`. Here the rows' numbers and gradients, which lie in blocks on the replicas,
become summands with zeros in the others' places, so that they are summed in the same call as all other gradients. Each
replica adds the rows of the whole batch to its table then, in the order in which one device adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lockstep._cpu.partitioner.flat import Equation, Flat, Value
from lockstep._cpu.partitioner.layout import PARTIAL, replica_number, sharded, size_of
from lockstep._cpu.partitioner.rules.base import Call, Decision, linear, rule
from lockstep._cpu.partitioner.rules.indexing import scatter_axes
from lockstep._types import Array

# Of the table: what is summed is read and written as often as a table would be, and then added to one.
_LARGEST_PART = 0.5


class _SpreadRows:
    """Primitive of plans alone: the identity on the numbers and the summands of rows, whatever their layouts."""

    name = "spread_rows"
    multiple_results = True

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Returns no parameters: those of the equation are for its rule."""
        del params
        return {}

    def bind(self, *values: Array) -> Sequence[Array]:
        """Returns the values."""
        return values


SPREAD_ROWS = _SpreadRows()


def spread_rows(flat: Flat) -> Flat:
    """Returns a program in which rows that are added to tables of zeros may be summed in place of the tables."""
    equations: list[Equation] = []
    for equation in flat.equations:
        if not _adds_few_rows(equation):
            equations.append(equation)
            continue
        table, *rows = equation.inputs
        spread = [Value(v.aval) for v in rows]
        equations.append(Equation(SPREAD_ROWS, equation.params, rows, spread, equation.context))
        inputs = [table, *spread]
        equations.append(Equation(equation.primitive, equation.params, inputs, equation.outputs, equation.context))
    return Flat(flat.inputs, equations, flat.outputs)


def _adds_few_rows(equation: Equation) -> bool:
    """Returns whether an equation adds whole rows, of fewer bytes than the table, to a table of zeros."""
    if equation.primitive.name != "scatter-add":
        return False
    table, places, summands = equation.inputs
    numbers = equation.params["dimension_numbers"]
    return (
        table.is_zero
        and tuple(numbers.inserted_window_dims) == tuple(numbers.scatter_dims_to_operand_dims) == (0,)
        and not numbers.operand_batching_dims
        and size_of(places.aval) + size_of(summands.aval) <= _LARGEST_PART * size_of(table.aval)
    )


@rule(SPREAD_ROWS.name)
def rows_as_summands(call: Call) -> Decision:
    """Makes summands of blocks along an axis of lookups; leaves other layouts as they are."""
    axes = _axes_of_blocks(call)
    if axes is None:
        return Decision(call.layouts, call.layouts)

    def run(values: Sequence[Array]) -> Sequence[Array]:
        return [_place_block(value, axis, call.count) for value, axis in zip(values, axes, strict=True)]

    return Decision([sharded(axis) for axis in axes], [PARTIAL, PARTIAL], run=run)


@linear(SPREAD_ROWS.name)
def keep_layouts(call: Call) -> Decision:
    """Leaves rows as they lie."""
    return Decision(call.layouts, call.layouts)


def _axes_of_blocks(call: Call) -> tuple[int, int] | None:
    """Returns the axes along which numbers and summands are divided, if that is an axis of lookups."""
    places, summands = call.layouts
    # The last axis holds the coordinates of one lookup.
    if not places.is_sharded or places.axis == len(call.shape(0)) - 1:
        return None
    axis = scatter_axes(call, 1)[places.axis]
    return (places.axis, axis) if not summands.is_sharded or summands.axis == axis else None


def _place_block(block: Array, axis: int, count: int) -> Array:
    """Returns this replica's block in its place in the whole, and zeros elsewhere."""
    shape = list(block.shape)
    shape[axis] *= count
    return lax.dynamic_update_slice_in_dim(
        jnp.zeros(shape, block.dtype), block, replica_number() * block.shape[axis], axis
    )
