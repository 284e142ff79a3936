"""The program of a coordinator whose functions count: a chief, workers and servers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep.distribute import coordinator as coordination

STEPS, BATCH = 200, 4


def elements() -> ls.data.Dataset:
    return ls.data.Dataset.from_tensor_slices(np.arange(STEPS * BATCH, dtype=np.int32)).batch(BATCH)


def coordinate(folder: Path, strategy: Any, held_at: int) -> None:
    """Schedules functions that count, and writes what has come of them."""
    with strategy.scope():
        counters = [keras.Variable(np.zeros(3, "int32"), name=f"counter_{i}", trainable=False) for i in range(4)]
        weight = keras.Variable(np.ones((64, 64), "float32"), name="weight")
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build([weight])
        seen = keras.metrics.Sum()
        # Of which workers have rows alone: 1.2 MiB.
        table = keras.Variable(np.zeros((20_000, 16), "float32"), name="table")
        counting = keras.optimizers.SGD(1.0)
        counting.build([table])
    coordinator = coordination.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(elements))

    def step(iterator: Any) -> Any:
        batch = next(iterator)
        for counter in counters:
            counter.assign_add(jnp.ones(3, "int32"))
        value = weight.value
        for _ in range(20):  # Long enough to be killed in the midst of it.
            value = jnp.tanh(value @ weight.value)
        optimizer.apply([jnp.ones_like(weight.value) * jnp.mean(value)], [weight])
        counting.apply([jax.grad(lambda rows: -jnp.sum(jnp.take(rows, batch, axis=0)))(table.value)], [table])
        seen.update_state(jnp.sum(batch))
        return jnp.sum(batch)

    # One worker's data are enough: what a worker has drawn, it computes, or another one does.
    results = []
    for number in range(STEPS):
        results.append(coordinator.schedule(step, args=(iterator,)))
        if number == held_at:
            results[held_at // 2].fetch()
            (folder / "held").touch()
    coordinator.join()
    found = {
        "counters": [np.asarray(counter).tolist() for counter in counters],
        "iterations": int(np.asarray(optimizer.iterations)),
        "sums": [int(result.fetch()) for result in results],
        "seen": float(np.asarray(seen.result())),
        "weight": float(np.sum(np.asarray(weight))),
        "rows": np.asarray(table)[: STEPS * BATCH].mean(axis=1).tolist(),
    }
    (folder / "found.json").write_text(json.dumps(found))


def main() -> None:
    folder, held_at = Path(sys.argv[1]), int(sys.argv[2])
    resolver = ls.cluster_resolver.TFConfigClusterResolver()
    (folder / f"{resolver.task_type} {resolver.task_id}.pid").write_text(str(os.getpid()))
    if resolver.task_type in ("worker", "ps") and "same program" not in sys.argv:
        ls.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        ).join()
        return
    coordinate(folder, ls.distribute.ParameterServerStrategy(resolver), held_at)


if __name__ == "__main__":
    main()
