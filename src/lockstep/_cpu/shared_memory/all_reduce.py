"""All-reduce through shared memory: the operation as a traced program sees it, and what turns it on for a job."""

from __future__ import annotations

import logging
import os
import zlib
from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._cpu import targets
from lockstep._cpu.shared_memory import bootstrap, custom_call
from lockstep._cpu.shared_memory.engine import Engine
from lockstep._engine.runtime import environment
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.replicas import Device

_log = logging.getLogger("lockstep")

VARIABLE = "LOCKSTEP_SHARED_MEMORY"
# Bytes exchanged between two waits. Adding 11 MB up between 2 processes took 3.7 ms with 128 KB, 3.0 with 256 KB, 2.6
# with 512 KB, 2.7 with 1 MB and 3.2 with 2 MB (2-core EPYC): below it is the waits that cost, above it is the cache.
_CHUNK_BYTES = 1 << 20

_engine: Engine | None = None


class AllReduce:
    """Sums over all replicas, which are CPU devices of processes of one machine.

    Args:
        axis: Name of the mesh axis of all replicas.
        replicas: How many there are, in all processes.
    """

    def __init__(self, axis: str, replicas: int) -> None:
        self.axis = axis
        self.replicas = replicas
        self._counts: Counter[int] = Counter()

    def sum(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns the sums of values over all replicas; call it inside `shard_map` over `axis`.

        The values make one call, which begins when the last of them is there. Boolean values, and those of types that
        numpy cannot add up, are left to XLA.
        """
        mine = [i for i, v in enumerate(values) if v.size and np.dtype(v.dtype) in custom_call.SUMMABLE]
        sums = dict(zip(mine, self._call([values[i] for i in mine], as_float32=False), strict=True))
        return [sums[i] if i in sums else lax.psum(v, self.axis) for i, v in enumerate(values)]

    def sum_bfloat16(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns the sums, of type float32, of values of type bfloat16, none of them empty; see `sum`."""
        return self._call(list(values), as_float32=True)

    def begin(self) -> None:
        """Says that a program is about to be traced: calls in it are numbered from 1 on.

        Then a program that is traced once more is the same program, which need not be compiled again. Calls of
        different programs may have one number: all processes run their programs in the same order.
        """
        self._counts.clear()

    def _call(self, values: list[jax.Array], as_float32: bool) -> list[jax.Array]:
        if not values:
            return []
        call = jax.ffi.ffi_call(
            custom_call.NAME,
            [jax.ShapeDtypeStruct(v.shape, jnp.float32 if as_float32 else v.dtype) for v in values],
            # Every process takes part, whether or not it needs the sums.
            has_side_effect=True,
            vmap_method="broadcast_all",
            # Shared memory holds what was there: the sums can take its place, which saves a third of the writing.
            input_output_aliases=None if as_float32 else {i + 1: i for i in range(len(values))},
        )
        # The id is the same on all processes and in the next start: of the values' types, and counted among such calls.
        kind = zlib.crc32(",".join(f"{v.dtype}{v.shape}" for v in values).encode())
        self._counts[kind] += 1
        replica = lax.axis_index(self.axis).astype(jnp.int32)
        return list(call(replica, *values, call_id=np.int64(kind << 24 | self._counts[kind])))


def connect(
    runtime: Runtime, devices: Sequence[Device], axis: str, peer_seconds: float | None = None
) -> AllReduce | None:
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
    connected = bootstrap.connect(runtime, _CHUNK_BYTES, seconds, wanted and targets.is_supported())
    if connected is None:
        _log.debug("sums between tasks go through the network")
        return None
    connections, segments = connected
    mine = [i for i, d in enumerate(devices) if d.process_index == runtime.process]
    # A forked process, such as one that loads data, must not make this one's end look like life.
    os.register_at_fork(after_in_child=connections.close_in_child)
    is_one_each = len(devices) == len(runtime.tasks)
    _engine = Engine(connections, segments, _CHUNK_BYTES, mine, is_one_each)
    custom_call.register(_engine.submit)
    _log.debug("sums between tasks go through shared memory")
    return AllReduce(axis, len(devices))


def bytes_written() -> int:
    """Returns how many bytes this process has written so far for others to read, to add up."""
    return 0 if _engine is None else _engine.bytes_written


def is_wanted() -> bool:
    """Returns whether the environment leaves it on; raises `ArgumentError` for anything but 0, 1 and nothing."""
    return environment.env_flag(VARIABLE, "tasks of one machine add up through shared memory")
