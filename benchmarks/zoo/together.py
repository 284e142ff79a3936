"""Compiles many networks at the same time and measures them one after the other: for machines lent by the minute.

On a GPU a network of the zoo compiles for up to two minutes, on one processor of many, and trains for a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.environments import ROOT, Pythons, variables
from benchmarks.zoo.measure import READY

_SIDE = str(ROOT / "benchmarks" / "side.py")
_RESULT = "RESULT "
# Processes share the device's memory, which jax would have the first one take.
_OWN = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# What is left for measuring when those that still compile are given up, of each process that is ready.
_SECONDS_OF_ONE = 3.0


class _Process:
    """A side of a network: compiles, says that it is ready, and measures when it is told to."""

    def __init__(self, python: str, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        command = [python, _SIDE, "benchmarks.zoo.measure", "fit_when_told", json.dumps(dict(options))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env={**environment, **_OWN}, text=True, **pipes)
        self.is_ready, self.has_ended = threading.Event(), threading.Event()
        self.measured: dict[str, float] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.startswith(READY):
                self.is_ready.set()
            elif line.startswith(_RESULT):
                self.measured = json.loads(line.removeprefix(_RESULT))["measured"]
        self.has_ended.set()

    @property
    def waits(self) -> bool:
        return self.is_ready.is_set() and not self.has_ended.is_set()

    def measure(self, seconds: float) -> None:
        assert self._process.stdin is not None
        print("go", file=self._process.stdin, flush=True)
        self.has_ended.wait(max(0.0, seconds))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(
    names: Sequence[str], sides: Sequence[tuple[str, str, Any]], pythons: Pythons, seconds: float, minutes: float
) -> Iterator[tuple[str, str, dict[str, float]]]:
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
        (name, title): _Process(
            pythons.of(environment), variables(environment), {"network": name, "side": side, "seconds": seconds}
        )
        for name in names
        for title, side, environment in sides
    }
    try:
        latest = end - (seconds + _SECONDS_OF_ONE) * len(started)
        while time.monotonic() < latest and not all(p.waits or p.has_ended.is_set() for p in started.values()):
            time.sleep(0.1)
        for (name, title), process in started.items():
            if not process.waits:
                print(
                    f"{name}, {title}: {'failed' if process.has_ended.is_set() else 'still compiles'}", file=sys.stderr
                )
                process.end()
        for (name, title), process in started.items():
            if process.waits:
                process.measure(end - time.monotonic())
            if process.measured:
                yield name, title, process.measured
            process.end()
    finally:
        for process in started.values():
            process.end()


def result_path(directory: Path, device: str) -> Path:
    """Returns where figures of a device ("cpu" or a GPU's name) are kept."""
    return directory / ("zoo.json" if device == "cpu" else "gpu_zoo.json")
