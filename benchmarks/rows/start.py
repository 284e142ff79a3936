"""Row 6: from the start of a process to the first trained step, and what imports take of it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.case import KERAS, OURS, TENSORFLOW, Bar, Case, Side
from benchmarks.harness.environments import ROOT
from benchmarks.harness.processes import tf_configs

_FIRST, _SECOND, _TWO, _IMPORT = "s, first start", "s, second start", "s, 2 workers", "s"
_MODULE = "benchmarks.rows.start"


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """The example."""
    return _starts([sys.executable, str(ROOT / "examples" / "mnist.py"), "--epochs", "1"], options)


def tensorflow(options: Mapping[str, Any]) -> dict[str, float]:
    """What it is in TensorFlow."""
    return _starts([sys.executable, str(ROOT / "benchmarks" / "programs" / "mnist_tensorflow.py")], options)


def _starts(command: list[str], options: Mapping[str, Any]) -> dict[str, float]:
    """Starts as a user who has never started it before, and again."""
    from benchmarks.programs.start import seconds_to_first_step

    with tempfile.TemporaryDirectory() as home:
        own = {"HOME": home, "XDG_CACHE_HOME": str(Path(home) / ".cache"), "LOCKSTEP_DATA_DIR": options["data"]}

        def start(workers: int, complete: bool = False) -> float:
            tasks = [{}] if workers == 1 else tf_configs(workers)
            return seconds_to_first_step(command, [{**own, **task} for task in tasks], home, complete)

        first = start(1, complete=True)
        start(2, complete=True)
        ones, twos = zip(*((start(1), start(2)) for _ in range(options["starts"])), strict=True)
    return {_FIRST: first, _SECOND: statistics.median(ones), _TWO: statistics.median(twos)}


def imports(options: Mapping[str, Any]) -> dict[str, float]:
    """What an import takes, in fresh processes; the first is not counted: it warms the file cache."""
    code = f"import time; start = time.perf_counter(); {options['statement']}; print(time.perf_counter() - start)"

    def once() -> float:
        return float(subprocess.check_output([sys.executable, "-c", code], env=os.environ, text=True).splitlines()[-1])

    once()
    return {_IMPORT: statistics.median(once() for _ in range(options["starts"]))}


def _import(name: str, statement: str, environment: Any, role: Any = "peer") -> Side:
    return Side(name, "imports", environment, role, {"statement": statement})


_BOTH = "lockstep, with keras"
CASES = [
    Case(
        row=6,
        name="Start",
        title="Process start to the first trained step of `examples/mnist.py`",
        module=_MODULE,
        metrics={
            _SECOND: "to the first step that the progress bar shows, with what the first start has left in caches",
            _TWO: "the same of the chief of 2 workers, started at the same time",
            _FIRST: "with empty caches",
        },
        needs=["digits"],
        sides=[Side(OURS, "lockstep", "lockstep", "ours"), Side(TENSORFLOW, "tensorflow", "tensorflow")],
        bars=[
            Bar("x TensorFlow 2.15's seconds", (OURS, _SECOND), [(TENSORFLOW, _SECOND)], 1.0, 0.5, at_most=True),
            Bar("s more for 2 workers", (OURS, _TWO), [(OURS, _SECOND)], 2.0, None, "difference", at_most=True),
        ],
    ),
    Case(
        row=6,
        name="Imports",
        title="Imports",
        module=_MODULE,
        metrics={_IMPORT: "in a fresh process, files in memory"},
        sides=[
            _import(OURS, "import lockstep", "lockstep", "ours"),
            _import(_BOTH, "import lockstep, keras", "lockstep", "ours"),
            _import(KERAS, "import keras", "jax"),
            _import(TENSORFLOW, "import tensorflow", "tensorflow"),
        ],
    ),
]
