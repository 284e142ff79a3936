"""Schedules the steps of a training loop of one's own on workers, whose updates parameter servers apply.

lockstep run --chief --workers 2 --ps 2 examples/cluster_coordinator.py    five tasks on this machine
python examples/cluster_coordinator.py                                     the same as threads of one process
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import jax
import keras
import numpy as np

BATCH = 32


def threads_of_this_process() -> ls.cluster_resolver.ClusterResolver:
    """Returns a cluster of two workers and two servers, which listen in this process."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    cluster = {"worker": addresses[:2], "ps": addresses[2:]}
    for job in cluster:
        for index in range(2):
            ls.distribute.Server(cluster, job_name=job, task_index=index)
    return ls.cluster_resolver.SimpleClusterResolver(cluster)


def dataset() -> ls.data.Dataset:
    """Returns batches of points, and whether they lie in a circle."""
    random = np.random.default_rng(0)
    points = random.uniform(-1, 1, (2048, 2)).astype(np.float32)
    inside = (np.sum(points**2, axis=1, keepdims=True) < 0.5).astype(np.float32)
    return ls.data.Dataset.from_tensor_slices((points, inside)).shuffle(2048).repeat().batch(BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description="Schedules a training loop on workers of parameter servers.")
    parser.add_argument("--epochs", type=int, default=5, help="times that the coordinator looks at the result")
    parser.add_argument("--steps", type=int, default=100, help="steps between that")
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    resolver = ls.cluster_resolver.TFConfigClusterResolver()
    strategy = ls.distribute.ParameterServerStrategy(resolver if resolver.task else threads_of_this_process())
    # On workers and servers this call serves, until the chief's program has ended.
    coordinator = ls.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        layers = [keras.layers.Dense(32, activation="relu"), keras.layers.Dense(32, activation="relu")]
        model = keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dense(1, activation="sigmoid")])
        optimizer = keras.optimizers.Adam(0.01)
        accuracy = keras.metrics.BinaryAccuracy()

    def replica_step(points: Any, inside: Any) -> Any:
        def compute(weights: Any) -> Any:
            outputs = model.stateless_call(weights, [v.value for v in model.non_trainable_variables], points)[0]
            return keras.ops.mean(keras.losses.binary_crossentropy(inside, outputs)), outputs

        weights = [v.value for v in model.trainable_variables]
        (loss, outputs), gradients = jax.value_and_grad(compute, has_aux=True)(weights)
        optimizer.apply(gradients, model.trainable_variables)
        accuracy.update_state(inside, outputs)
        return loss

    def step(iterator: Any) -> Any:
        return strategy.run(replica_step, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    loss = None
    for epoch in range(args.epochs):
        accuracy.reset_state()
        for _ in range(args.steps):
            loss = coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        assert loss is not None
        print(f"Epoch {epoch + 1}: loss {loss.fetch():.4f}, accuracy {float(np.asarray(accuracy.result())):.3f}")
    print(f"Updates: {int(np.asarray(optimizer.iterations))}")


if __name__ == "__main__":
    main()
