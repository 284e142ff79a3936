"""What replicas exchange, inside of `shard_map`. Sums go through `Reduction` instead; see `run`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from lockstep._engine.step.replicas import AXIS


def replica_number() -> Any:
    """The number of this replica, an int32."""
    return lax.axis_index(AXIS)


def own_block(value: Any, axis: int, count: int) -> Any:
    """Returns this replica's block of a value that it holds whole."""
    length = value.shape[axis] // count
    return lax.dynamic_slice_in_dim(value, replica_number() * length, length, axis)


def all_blocks(block: Any, axis: int) -> Any:
    """The whole value of which each replica holds a block."""
    if block.dtype == bool:
        return lax.all_gather(block.astype(jnp.uint8), AXIS, axis=axis, tiled=True).astype(bool)
    return lax.all_gather(block, AXIS, axis=axis, tiled=True)


def everyones(value: Any) -> Any:
    """Each replica's value, along a new first axis."""
    return all_blocks(jnp.expand_dims(value, 0), 0)


def as_summand(value: Any) -> Any:
    """A value that all replicas hold, as a sum over them: the first one's, and zeros."""
    return jnp.where(replica_number() == 0, value, jnp.zeros_like(value))
