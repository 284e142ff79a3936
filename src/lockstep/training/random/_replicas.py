"""Keys of replicas, and rows of what is drawn for a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.step import sequential_emulation
from lockstep._types import Array
from lockstep.distribute import get_replica_context
from lockstep.errors import ArgumentError


def replica_key(key: Array) -> Any:
    """Returns a key of this replica's own: `jax.random.fold_in(key, replica_id_in_sync_group)`.

    What is drawn with it differs between replicas, and so depends on how many there are.

    Args:
        key: A key that all replicas have.
    """
    context = get_replica_context()
    return jax.random.fold_in(key, 0 if context is None else context.replica_id_in_sync_group)


def for_batch(draw: Callable[..., Any], key: Array, shape: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
    """Draws for this replica's rows what one device would draw for them, if it had the whole batch.

    All rows are drawn, and this replica's are taken; so training does not depend on the number of replicas.

    Args:
        draw: Such as `jax.random.normal`: called with `key`, a shape, and what else is given.
        key: A key that all replicas have.
        shape: Of what this replica wants; its first axis is that of its rows.
        *args: For `draw`.
        **kwargs: For `draw`.

    Returns:
        An array of this shape.

    Raises:
        ArgumentError: If the shape has no axis of rows, or is that of something else.

    Examples:
        >>> noise = for_batch(jax.random.normal, key, images.shape)
    """
    if not shape:
        raise ArgumentError("What is drawn for a batch has an axis of rows. Received: shape (). Draw with key itself.")
    total, start = _locate(shape[0])
    # Drawn by every replica, so that nothing is sent. Not row by row with keys of their own: one device does not draw
    # so, and `draw` may be any function of a shape, whose numbers depend on all of it.
    drawn = draw(key, (total, *shape[1:]), *args, **kwargs)
    return drawn if total == shape[0] else lax.dynamic_slice_in_dim(drawn, start, shape[0])


def rows_of_batch(count: int) -> Any:
    """Returns the numbers of this replica's rows in the whole batch, int32 (count,).

    Args:
        count: How many rows this replica has.

    Raises:
        ArgumentError: If it has another number of rows.
    """
    return _locate(count)[1] + jnp.arange(count, dtype=jnp.int32)


def _locate(count: int) -> tuple[int, Any]:
    """Returns how many rows the whole batch has, and the first one of this replica."""
    turn = sequential_emulation.current()
    # Shards of different sizes: the number of a replica times the length of its own would be another's rows.
    if turn is not None and turn.rows:
        if count != turn.rows[turn.number]:
            raise ArgumentError(
                f"This replica has {turn.rows[turn.number]} rows of the batch. Received: {count}. Give the length of "
                "its share."
            )
        return sum(turn.rows), sum(turn.rows[: turn.number])
    context = get_replica_context()
    if context is None:
        return count, 0
    return count * context.num_replicas_in_sync, context.replica_id_in_sync_group * count
