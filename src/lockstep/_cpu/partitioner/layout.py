"""Layouts of values on replicas, and the collectives that change them, inside of `shard_map`.

Sums go through `Reduction` instead; see `schedule.run_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from lockstep._engine.step.replicas import AXIS
from lockstep._types import Array, Aval


class NoRule(Exception):
    """A step, or a part of it, cannot be divided soundly; the message says why. Never leaves the package."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Layout on the replicas of a value of the global batch's program.

    There is one of each kind, so they are compared by identity: `REPLICATED`, `PARTIAL`, and what `sharded` returns.

    Attributes:
        axis: The axis of the array along which it is divided; negative if it is not.
    """

    axis: int

    @property
    def is_sharded(self) -> bool:
        """True if each replica holds a block of the value."""
        return self.axis >= 0


REPLICATED = Layout(-1)
"""Each replica holds all of it."""

PARTIAL = Layout(-2)
"""Each replica holds a summand of it."""

_SHARDED = tuple(Layout(axis) for axis in range(16))


def sharded(axis: int) -> Layout:
    """Returns the layout of equal blocks along `axis`, in the order of the replicas."""
    if not 0 <= axis < len(_SHARDED):
        raise NoRule(f"axis {axis} of an array is out of reach")
    return _SHARDED[axis]


def local_shape(shape: Sequence[int], axis: int, count: int) -> tuple[int, ...]:
    """Returns the shape of one of `count` blocks along `axis`; raises `NoRule` if it does not divide."""
    if shape[axis] % count:
        raise NoRule(f"axis {axis} of {tuple(shape)} does not divide by {count}")
    return (*shape[:axis], shape[axis] // count, *shape[axis + 1 :])


def size_of(aval: Aval) -> int:
    """Returns the bytes of a whole value."""
    return math.prod(aval.shape) * aval.dtype.itemsize


def replica_number() -> Any:
    """Returns the number of this replica, an int32."""
    return lax.axis_index(AXIS)


def own_block(value: Array, axis: int, count: int) -> Any:
    """Returns this replica's block of a value that it holds whole."""
    length = value.shape[axis] // count
    return lax.dynamic_slice_in_dim(value, replica_number() * length, length, axis)


def gather_blocks(block: Array, axis: int) -> Any:
    """Returns the whole value of which each replica holds a block."""
    if block.dtype == bool:
        return lax.all_gather(block.astype(jnp.uint8), AXIS, axis=axis, tiled=True).astype(bool)
    return lax.all_gather(block, AXIS, axis=axis, tiled=True)


def gather_replicas(value: Array) -> Any:
    """Returns each replica's value, along a new first axis."""
    return gather_blocks(jnp.expand_dims(value, 0), 0)


def as_summand(value: Array) -> Any:
    """Returns a value that all replicas hold as a sum over them: the first one's, and zeros."""
    # Not divided by the count: that would round, and integers have no such part.
    return jnp.where(replica_number() == 0, value, jnp.zeros_like(value))
