"""Networks of the zoo on several workers of this machine, beside TensorFlow and the same without communication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness.case import OURS, TENSORFLOW, Bar, Case, Environment, Role, Side
from benchmarks.harness.processes import wait_for_all
from benchmarks.rows.workers import ALONE, MODULE, RATE
from benchmarks.zoo.measure import networks

# As different as the zoo has them: pictures, attention, a recurrence, tables of embeddings, and nothing but weights.
DIFFERENT = ("ResNet-18, 32 pixels", "encoder 2x128, 128 tokens", "LSTM", "DLRM", "MLP 2048-2048-2048, batch 128")


def cases(names: Sequence[str], counts: Sequence[int], epochs: int) -> Iterator[Case]:
    """Yields a case for each network and number of workers; each worker has the network's batch."""
    for name in names:
        for count in counts:
            options = {"network": name, "workers": count, "epochs": epochs}
            network = networks()[name]
            yield Case(
                row=11,
                name=f"{name}, {count} workers",
                title=f"{name} ({network.title}) on {count} workers x {network.batch}, `fit` of arrays",
                module=MODULE,
                metrics={RATE: f"of all workers together, {epochs} epochs after the first one"},
                sides=[
                    _side(OURS, "together", "lockstep", "ours", options),
                    _side(TENSORFLOW, "together", "tensorflow", "peer", options),
                    _side(ALONE, "apart", "lockstep", "ceiling", options),
                ],
                bars=[
                    Bar("x TensorFlow 2.15", (OURS, RATE), [(TENSORFLOW, RATE)], None),
                    Bar("x the same without communication", (OURS, RATE), [(ALONE, RATE)], None),
                ],
                batch=network.batch * count,
                notes=(
                    "Without communication: as many processes of one worker, at the same time on the same cores, timed "
                    "between a common start after the first epoch and each one's end."
                ),
            )


def _side(name: str, runs: str, environment: Environment, role: Role, options: Mapping[str, Any]) -> Side:
    ours = {"worker_module": "benchmarks.zoo.workers", "worker_runs": "worker", "side": environment}
    return Side(name, runs, environment, role, {**options, **ours})


def worker(options: Mapping[str, Any]) -> dict[str, float]:
    """Fits the network on this worker's part of global batches; without TF_CONFIG, as a single worker."""
    from benchmarks.programs.fit import timed_epochs

    network = networks()[options["network"]]
    keras, strategy = _strategy(options["side"])
    keras.mixed_precision.set_global_policy(network.policy)
    with strategy.scope():
        model = network.build(keras)
    replicas = strategy.num_replicas_in_sync
    x, y = network.examples(network.batch * network.steps * replicas)
    data = {"x": x, "y": y, "batch_size": network.batch * replicas, "shuffle": False}
    between = wait_for_all if replicas == 1 else None
    return {RATE: timed_epochs(keras, model, network.steps, options["epochs"], between, **data)}


def _strategy(side: str) -> tuple[Any, Any]:
    if side == "tensorflow":
        import tensorflow as tf

        return tf.keras, tf.distribute.MultiWorkerMirroredStrategy()
    import lockstep as ls  # isort: split
    import keras

    return keras, ls.distribute.MultiWorkerMirroredStrategy()
