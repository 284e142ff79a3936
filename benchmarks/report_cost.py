"""Measures the cost of a report to the run that leaves it: CPU time, and time on the clock.

    python benchmarks/report_cost.py --rounds 9

Trains a small network with a report and without one, in turn, each time in a process of its own. Two figures for each
way of training:

* own: CPU time of the threads that are in the recorder, from its imports to the page after the last step, as a part of
  the CPU time of the process. It is exact to a few milliseconds whatever else the machine does. The bar is 0.5 %.
* beside: CPU time and wall time of the processes with a report beside those without, as medians over the rounds with
  their quartiles. It holds what the first one could miss, such as one thread holding up another, and all that the
  machine did meanwhile: only its size says anything, and only if the quartiles are near each other.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.harness.disturbance import Disturbance

# Examples of an epoch, batch, and epochs for ten seconds on two cores: the first case is a program as people write it,
# the second does nothing but end epochs.
CASES = {"epochs of a second": (60_000, 64, 16), "epochs of 15 ms": (640, 64, 1000)}


def train(case: str, log_dir: str | None) -> None:
    """Trains, with a report in `log_dir` if that is given; prints what the process and the recorder have taken."""
    began = time.perf_counter()
    taken = _Clock()
    # Registered before the recorder's own last function, it runs after that.
    atexit.register(lambda: print(json.dumps({**_of_process(began), "own": taken.seconds}), flush=True))
    import numpy as np

    import lockstep as ls

    import keras  # isort: skip

    with taken.running():
        from lockstep._engine.runtime import recorder
    if log_dir is not None:
        for name in ("__init__", "begin", "end", "epoch", "values", "restored", "_run", "_finish"):
            taken.around(recorder.Recorder, name)
        # The history of `fit` reads the results of epochs from the device anyway: whoever is first has them fetched.
        counted = recorder.Recorder.epoch

        def read_first(self: Any, epoch: int, logs: Any) -> None:
            counted(self, epoch, {name: float(value) for name, value in logs.items()})

        recorder.Recorder.epoch = read_first
    examples, batch, epochs = CASES[case]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(examples, 784)).astype("float32"), rng.integers(0, 10, examples)
    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    callbacks = [] if log_dir is None else [ls.callbacks.RunReport(log_dir)]
    trained: Any = model
    trained.fit(x, y, batch_size=batch, epochs=epochs, verbose=0, callbacks=callbacks)


class _Clock:
    """CPU seconds of whatever thread is in one of some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        began = time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.thread_time() - began

    def around(self, owner: Any, name: str) -> None:
        """Counts what a method takes. None of those that are counted calls another one."""
        function = getattr(owner, name)

        def counted(*args: Any) -> Any:
            with self.running():
                return function(*args)

        setattr(owner, name, counted)


def _of_process(began: float) -> dict[str, float]:
    return {"cpu": time.process_time(), "wall": time.perf_counter() - began}


def measured(case: str, has_report: bool) -> dict[str, float]:
    """Returns seconds of one process: "cpu", "wall", and "own", of the recorder."""
    # As pip leaves a package: with compiled files.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--train", case, *(["--log-dir", directory] if has_report else [])]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        if has_report and not (Path(directory) / "report.html").exists():
            raise RuntimeError(f"No report was left:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def in_turn(case: str, rounds: int) -> dict[bool, list[dict[str, float]]]:
    """Returns what processes with a report (`True`) and without have taken, by round."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(rounds + 1):
        # There and back, so that drift of the machine meets both.
        for has_report in (False, True) if number % 2 else (True, False):
            taken = measured(case, has_report)
            # The first ones read files and compile modules.
            if number:
                found[has_report].append(taken)
    return found


def row(case: str, found: dict[bool, list[dict[str, float]]]) -> str:
    """Returns a row of the table."""
    own = [taken["own"] / taken["cpu"] for taken in found[True]]
    beside = {
        key: [a[key] / b[key] - 1 for a, b in zip(found[True], found[False], strict=True)] for key in ("cpu", "wall")
    }
    cpu, used = (statistics.median(taken[key] for taken in found[True]) for key in ("cpu", "own"))
    cells = [
        case,
        f"{cpu:.1f} s",
        f"{1e3 * used:.0f} ms",
        f"{statistics.median(own):.2%} ({min(own):.2%} to {max(own):.2%})",
        *map(_with_quartiles, beside.values()),
    ]
    return f"| {' | '.join(cells)} |"


def _with_quartiles(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%})"


def main() -> None:
    """Prints a table, or trains as one of the processes that it is of."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="processes of each kind, for each way of training")
    parser.add_argument("--train", metavar="CASE", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--log-dir", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds is at least 2: quartiles are of several rounds")
    if given.train:
        train(given.train, given.log_dir)
        return
    print("| | CPU time | of it the report's own | | CPU beside none | wall beside none |\n|---|---|---|---|---|---|")
    machine = Disturbance()
    for case in CASES:
        print(row(case, in_turn(case, given.rounds)), flush=True)
    print(f"Other programs had {machine.others():.0%} of the processors meanwhile.")


if __name__ == "__main__":
    main()
