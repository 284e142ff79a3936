"""Compiles many networks at the same time and measures them one after the other: for machines lent by the minute.

On a GPU a network of the zoo compiles for up to two minutes, on one processor of many, and trains for a second.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness.environments import Pythons, variables
from benchmarks.harness.processes import Failed, Worker, side_command

# Processes share the device's memory, which jax would have the first one take.
_OWN = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# What is left for measuring when those that still compile are given up, of each process that is ready.
_SECONDS_OF_ONE = 3.0


def measure(
    names: Sequence[str], sides: Sequence[tuple[str, str, Any]], pythons: Pythons, seconds: float, minutes: float
) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    """Yields (network, side, what was measured) for all that were ready in time.

    Args:
        names: The networks.
        sides: Of each its name, its word in `measure.SIDES`, and its environment.
        pythons: Interpreters by environment.
        seconds: How long each is measured.
        minutes: How long all may take.
    """
    end = time.monotonic() + 60 * minutes
    started = {
        (name, title): _start(name, side, pythons.of(environment), variables(environment), seconds)
        for name in names
        for title, side, environment in sides
    }
    try:
        latest = end - (seconds + _SECONDS_OF_ONE) * len(started)
        for worker in started.values():
            worker.settled.wait(max(0.0, latest - time.monotonic()))
        # Nothing else runs on the device while one is measured.
        for (name, title), worker in started.items():
            if not worker.ready.is_set():
                why = "still compiles" if worker.process.poll() is None else f"failed: {worker.words()}"
                print(f"{name}, {title}: {why}", file=sys.stderr)
                worker.process.kill()
        for (name, title), worker in started.items():
            if worker.ready.is_set():
                with suppress(Failed, BrokenPipeError, subprocess.TimeoutExpired):
                    worker.go()
                    worker.process.wait(max(0.0, end - time.monotonic()))
                    yield name, title, worker.result()
                worker.process.kill()
    finally:
        for worker in started.values():
            worker.process.kill()
            worker.process.wait()


def _start(name: str, side: str, python: str, environment: Mapping[str, str], seconds: float) -> Worker:
    options = {"network": name, "side": side, "seconds": seconds, "waits": True}
    return Worker(side_command(python, "benchmarks.zoo.measure", "fit", options), {**environment, **_OWN})


def result_path(directory: Path, device: str) -> Path:
    """Returns where figures of a device ("cpu" or a GPU's name) are kept."""
    return directory / ("zoo.json" if device == "cpu" else "gpu_zoo.json")
