"""What shard_optimizer_state saves and costs: bytes on each device, and the time of a step beside the plain one.

    python benchmarks/sharded_optimizer.py --devices 4
    lockstep run --workers 2 benchmarks/sharded_optimizer.py

The model is an MLP of 4.2 million weights, trained with Adam on global batches of 64. Both ways take turns; times are
medians over the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from typing import Any

import numpy as np

import lockstep as ls

WIDTH, BATCH, STEPS, ROUNDS = 1024, 64, 10, 3


def model_of(strategy: Any) -> Any:
    """The network, compiled for a strategy."""
    import keras

    keras.utils.set_random_seed(0)
    with strategy.scope():
        hidden = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(4)]
        model = keras.Sequential([keras.Input((WIDTH,)), *hidden, keras.layers.Dense(10)])
        model.compile(keras.optimizers.Adam(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def bytes_on_a_device(model: Any) -> int:
    """What a device holds of the optimizer's state between steps."""
    from lockstep._engine.keras.ownership import ownership

    owned = ownership(model)
    assert owned is not None
    placed = [owned.copies.placed(v, vars(v)["_value"]) for v in model.optimizer.variables]
    return sum(array.addressable_shards[0].data.nbytes for array in placed)


def measured(strategy: Any) -> dict[str, tuple[int, float]]:
    """Returns bytes on a device, and seconds of a step, by "whole" and "in parts"."""
    replicas = strategy._demanded_replicas()
    ways = {"whole": False, "in parts": True}
    found = {
        name: ls.distribute.Strategy(
            dataclasses.replace(replicas, shards_optimizer_state=divides), strategy.cluster_resolver
        )
        for name, divides in ways.items()
    }
    models = {name: model_of(one) for name, one in found.items()}
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH * STEPS, WIDTH)).astype("float32")
    y = rng.integers(0, 10, len(x), dtype="int32")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):  # The first one compiles.
        for name, model in models.items():
            clock = Clock()
            model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[clock.callback()])
            if number:
                seconds[name].append(clock.seconds / STEPS)
    return {name: (bytes_on_a_device(model), statistics.median(seconds[name])) for name, model in models.items()}


class Clock:
    """Times the steps of an epoch, without what comes before and after them."""

    seconds = 0.0

    def callback(self) -> Any:
        """Returns a callback that does."""
        import keras

        def begin(epoch: int, logs: Any = None) -> None:
            self.seconds = -time.perf_counter()

        def end(epoch: int, logs: Any = None) -> None:
            self.seconds += time.perf_counter()

        return keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1, help="virtual CPU devices of each process")
    devices = parser.parse_args().devices
    if devices > 1:
        ls.config.set_logical_cpu_devices(devices)
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    replicas = strategy._demanded_replicas()
    if len(replicas.runtime.tasks) == 1:
        strategy = ls.distribute.MirroredStrategy()
    found = measured(strategy)
    if replicas.runtime.is_chief:
        where = f"{len(replicas.runtime.tasks)} processes, {strategy.num_replicas_in_sync} devices"
        print(f"| {where} | MB each | ms a step |")
        print("|---|---|---|")
        for name, (size, seconds) in found.items():
            print(f"| {name} | {size / 1e6:.1f} | {seconds * 1e3:.1f} |")


if __name__ == "__main__":
    main()
