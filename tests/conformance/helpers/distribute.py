"""`distribute.test_util`: values of replicas, gathered and made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lockstep.compat.tensorflow as tf
from lockstep.distribute import PerReplica
from tests.conformance.absent import AbsentError
from tests.conformance.helpers.case import main as main


def gather(strategy: Any, value: Any) -> Any:
    """Returns all replicas' values, stacked."""
    return tf.nest.map_structure(lambda v: tf.stack(list(strategy.experimental_local_results(v))), value)


def create_per_replica(strategy: Any, value_list: Sequence[Any]) -> Any:
    """Returns a value for each replica."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.convert_to_tensor(value_list[context.replica_id_in_sync_group])
    )


def is_tpu_strategy(strategy: Any) -> bool:
    return False


def set_logical_devices_to_at_least(device: str, num: int) -> None:
    """Does nothing: the process has enough devices."""


def reset_context() -> None:
    """Does nothing: the process has enough devices."""


def assert_sequential_execution(*args: Any) -> None:
    raise AbsentError("graph", "operations of a graph")


topological_sort_operations = assert_sequential_execution


def get_running_threads() -> set[str]:
    import threading

    return {thread.name for thread in threading.enumerate()}


def has_thread(prefix: str, running_threads: set[str]) -> bool:
    return any(name.startswith(prefix) for name in running_threads)


__all__ = ["PerReplica", "create_per_replica", "gather", "is_tpu_strategy", "main"]
