"""Where replicas may divide an optimizer's state among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import Replicas


def check_slots(replicas: Replicas) -> None:
    """Checks `shard_optimizer_state`.

    Raises:
        ArgumentError: If it is no bool.
        UnsupportedError: If other options have steps run once per replica, where each needs the whole of it.
    """
    if type(replicas.shards_optimizer_state) is not bool:
        raise ArgumentError(
            f"shard_optimizer_state must be True or False. Received: {replicas.shards_optimizer_state!r}."
        )
    if replicas.shards_optimizer_state and (replicas.explicit or replicas.local_sgd is not None):
        raise UnsupportedError(
            "With shard_optimizer_state XLA divides the step, and decides what travels. Received it together with "
            "options that have steps run once per replica: communication_options, cross_device_ops, local_steps or "
            'batch_statistics="replica". Leave one of them out.'
        )
