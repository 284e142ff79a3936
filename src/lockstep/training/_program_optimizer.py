"""The part of a user's state that is an optimizer's, which replicas may divide among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lockstep._engine.step import zero1
from lockstep._engine.step.placement import gather_to_host, local_copy
from lockstep._engine.step.replicas import Replicas
from lockstep.errors import ArgumentError
from lockstep.training._program_layout import Layout

_EXAMPLE = 'Example: Program(step, strategy, optimizer_state=lambda state: state["optimizer"])'

Part = Callable[[Any], Any]


def checked_part(part: Part | None, view: str, replicas: Replicas) -> Part | None:
    """Returns what says which part it is; `None` where nothing is divided.

    Raises:
        ArgumentError: If it is missing, or no function.
        UnsupportedError: If steps are written for one replica.
    """
    if part is not None and not callable(part):
        raise ArgumentError(f"optimizer_state is a function of a state. Received: {type(part).__name__}. {_EXAMPLE}")
    if not replicas.shards_optimizer_state or replicas.count == 1:
        return None
    if view == "replica":
        zero1.refuse(
            replicas,
            'view="replica", in which each replica computes the whole state',
            "Write the step for the whole batch, and leave view out; or make the strategy without it.",
        )
    if part is None:
        raise ArgumentError(
            "With shard_optimizer_state Program has to know which part of the state is the optimizer's. Received: no "
            f"optimizer_state. {_EXAMPLE}"
        )
    return part


def places_of_optimizer(layout: Layout, part: Part) -> frozenset[int]:
    """Returns which arrays of a state are the optimizer's, by number.

    Raises:
        ArgumentError: If none is.
    """
    names = layout.names_in(part)
    found = frozenset(i for i, name in enumerate(layout.array_names) if name in names)
    if not found:
        raise ArgumentError(
            "optimizer_state returns the part of a state that is the optimizer's: arrays. Received: a function that "
            f"returns {sorted(names)[:5]} of {layout.names[:10]}. {_EXAMPLE}"
        )
    return found


def local_of(replicas: Replicas, value: jax.Array) -> jax.Array:
    """Returns an array on the replicas as one of this process; all tasks call it together for one in parts."""
    if value.is_fully_replicated:
        return local_copy(value)
    return jax.numpy.asarray(gather_to_host(replicas, value))
