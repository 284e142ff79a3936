"""What a side of the zoo measures: examples/s and memory of `fit`, and seconds to the first step."""

from __future__ import annotations

import contextlib
import resource
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.zoo.network import Network

RATE, MEMORY, COLD, WARM = "examples/s", "MB", "s, cold", "s, warm"
SIDES = ("lockstep", "tensorflow", "keras_on_jax")


def networks() -> dict[str, Network]:
    """Returns all networks by name."""
    from benchmarks.zoo import sequences, tables, vision

    return {network.name: network for module in (vision, sequences, tables) for network in module.NETWORKS}


def compiled(side: str, network: Network) -> tuple[Any, Any]:
    """Returns the Keras of a side and the network compiled with it."""
    scope: Any = contextlib.nullcontext()
    if side == "tensorflow":
        import tensorflow as tf

        keras = tf.keras
    else:
        if side == "lockstep":
            import lockstep as ls

            scope = ls.distribute.MirroredStrategy().scope()
        import keras
    keras.mixed_precision.set_global_policy(network.policy)
    with scope:
        return keras, network.build(keras)


def fit(options: Mapping[str, Any]) -> dict[str, float]:
    """Measures whole epochs of `fit` after the first one, and the most memory that the process had.

    With the option `waits` it goes on after the first epoch when it is told to.
    """
    from benchmarks.harness.processes import wait_for_all
    from benchmarks.programs.fit import timed_fit

    network = networks()[options["network"]]
    keras, model = compiled(options["side"], network)
    x, y = network.examples(network.batch * network.steps)
    data = {"x": x, "y": y, "batch_size": network.batch, "shuffle": False, "least": 1}
    data["between"] = wait_for_all if options.get("waits") else None
    rate = timed_fit(keras, model, network.steps, options["seconds"], **data)
    # Linux counts it in units of 1,024 bytes.
    return {RATE: network.batch * rate, MEMORY: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def start(options: Mapping[str, Any]) -> dict[str, float]:
    """Measures from the start of a process to the first step that its progress bar shows: empty caches, then full."""
    from benchmarks.programs.start import seconds_to_first_step

    command = [sys.executable, str(Path(__file__).with_name("first_step.py")), options["side"], options["network"]]
    with tempfile.TemporaryDirectory() as home:
        own = {"HOME": home, "XDG_CACHE_HOME": str(Path(home) / ".cache")}

        def once(complete: bool) -> float:
            return seconds_to_first_step(command, [own], home, complete, options["limit"])

        # The first one runs to its end: what it leaves in caches is what the second one finds.
        return {COLD: once(complete=True), WARM: once(complete=False)}
