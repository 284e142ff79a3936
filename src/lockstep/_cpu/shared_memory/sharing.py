"""Turns the all-reduce through shared memory on, for a job whose processes and devices allow it."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from lockstep._cpu.shared_memory import neighbours, target
from lockstep._cpu.shared_memory.all_reduce import AllReduce
from lockstep._cpu.shared_memory.engine import Engine
from lockstep._engine.runtime import environment
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.runtime import Runtime

_log = logging.getLogger("lockstep")

VARIABLE = "LOCKSTEP_SHARED_MEMORY"
# Bytes exchanged between two waits. Adding 11 MB up between 2 processes took 3.7 ms with 128 KB, 3.0 with 256 KB, 2.6
# with 512 KB, 2.7 with 1 MB and 3.2 with 2 MB (2-core EPYC): below it is the waits that cost, above it is the cache.
_ROUND_BYTES = 1 << 20

_engine: Engine | None = None


def share(runtime: Runtime, devices: Sequence[Any], axis: str, peer_seconds: float | None = None) -> AllReduce | None:
    """Turns it on if all processes of the job are on this machine; called once by each of them, in the same place.

    Args:
        runtime: This process among the others.
        devices: All replicas' devices, in their order.
        axis: Name of the mesh axis over which programs will add up.
        peer_seconds: How long a process that is alive may be late for a sum. Default: `LOCKSTEP_PEER_TIMEOUT`'s value.

    Raises:
        ArgumentError: If `LOCKSTEP_SHARED_MEMORY` is neither 0 nor 1.
    """
    global _engine
    wanted = is_wanted()
    if runtime.is_alone or any(d.platform != "cpu" for d in devices):
        return None
    seconds = Limits.from_environment().peer if peer_seconds is None else peer_seconds
    found = neighbours.connect(runtime, _ROUND_BYTES, seconds, wanted and target.is_supported())
    if found is None:
        _log.debug("sums between tasks go through the network")
        return None
    links, arenas = found
    mine = [i for i, d in enumerate(devices) if d.process_index == runtime.process]
    # A forked process, such as one that loads data, must not make this one's end look like life.
    os.register_at_fork(after_in_child=links.forget)
    _engine = Engine(links, arenas, _ROUND_BYTES, mine, is_one_each=len(devices) == len(runtime.tasks))
    target.register(_engine.submit)
    _log.debug("sums between tasks go through shared memory")
    return AllReduce(axis, len(devices))


def bytes_written() -> int:
    """How many bytes this process has written so far for others to read, to add up."""
    return 0 if _engine is None else _engine.bytes_written


def is_wanted() -> bool:
    """Whether the environment leaves it on.

    Raises:
        ArgumentError: If the variable is neither 0 nor 1, nor empty.
    """
    return environment.env_flag(VARIABLE, "tasks of one machine add up through shared memory")
