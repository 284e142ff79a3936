"""Bare jax on several processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "workers"


def rate(made: Any, data: Any, each: int, counts: tuple[int, int], options: Mapping[str, Any]) -> float:
    """Joins, trains `counts[0]` steps of warm-up and `counts[1]` measured ones; returns steps/s."""
    jax.distributed.initialize(options["coordinator"], options["workers"], options["worker"])
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    whole, shares = PartitionSpec(), PartitionSpec(AXIS)
    state, step = made()
    state = jax.tree.map(
        lambda a: jax.make_array_from_process_local_data(NamedSharding(mesh, whole), np.asarray(a)), state
    )
    run = jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=(whole, shares), out_specs=whole, check_vma=False), donate_argnums=0
    )
    batches = _batches(data, each, options["worker"], NamedSharding(mesh, shares))
    for steps in counts:
        start = time.perf_counter()
        for _ in range(steps):
            state = run(state, next(batches))
        jax.block_until_ready(state)
    return counts[1] / (time.perf_counter() - start)


def _batches(data: Any, each: int, worker: int, sharding: NamedSharding) -> Any:
    random = np.random.default_rng(worker)
    while True:
        rows = random.integers(0, len(data[0]), each)
        yield tuple(jax.make_array_from_process_local_data(sharding, a[rows]) for a in data)
