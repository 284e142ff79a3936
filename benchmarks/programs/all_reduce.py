"""All-reduces of many sizes between processes, as XLA carries them out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

SIZES = [2**i for i in range(12, 27, 2)]


def seconds(options: Mapping[str, Any]) -> dict[str, float]:
    """Joins the other workers; returns the median seconds of an all-reduce of each size in bytes."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.distributed.initialize(options["coordinator"], options["workers"], options["worker"])
    mesh = Mesh(np.array(jax.devices()), ("workers",))
    sharding = NamedSharding(mesh, PartitionSpec("workers"))
    add = jax.jit(
        jax.shard_map(
            lambda a: jax.lax.psum(a, "workers"),
            mesh=mesh,
            in_specs=PartitionSpec("workers"),
            out_specs=PartitionSpec("workers"),
            check_vma=False,
        )
    )

    def once(array: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(add(array))
        return time.perf_counter() - start

    found = {}
    for size in SIZES:
        array = jax.make_array_from_process_local_data(sharding, np.ones((1, size // 4), np.float32))
        times = [once(array) for _ in range(options["repeats"] + 3)]
        found[str(size)] = statistics.median(times[3:])
    return found


def steps(options: Mapping[str, Any]) -> dict[str, Any]:
    """Trains one synchronous step after another on one worker; returns the seconds of each."""
    import lockstep as ls  # isort: split
    import keras

    from benchmarks.harness.processes import wait_for_all
    from benchmarks.programs import keras_models
    from benchmarks.programs.examples import square_digits

    x, y = square_digits(options["data"])
    with ls.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras_models.workers_cnn(keras)
    times: list[float] = []
    for i in range(options["repeats"] + 10):
        if i == 10:
            wait_for_all()
        first = 64 * i % 50_000
        start = time.perf_counter()
        model.train_on_batch(x[first : first + 64], y[first : first + 64])
        times.append(time.perf_counter() - start)
    return {"samples": times[10:]}
