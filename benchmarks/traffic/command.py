"""The command line of `communication.py`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.command import RESULTS, data_directory
from benchmarks.harness.environments import ROOT, Pythons, variables, versions
from benchmarks.harness.machine import machine, now
from benchmarks.harness.processes import end_with_children, measure
from benchmarks.traffic import pages, programs

Json = dict[str, Any]
_MODULE = "benchmarks.traffic.measure"
PARTS = ROOT / "runs" / "communication"
# Of each data set: how many examples, epochs and seeds.
_FULL = {"digits": (60_000, 4, 3), "pictures": (12_800, 6, 3)}
_QUICK = {"digits": (12_800, 4, 2), "pictures": (6_400, 4, 2)}
# Steps of an epoch, the first of which are those in which gradients travel whole; and of how many epochs.
_WATCHED = {"steps": 100, "epochs": 3}


def main() -> None:
    """Measures and writes."""
    end_with_children()
    given = _arguments()
    if given.data:
        os.environ["LOCKSTEP_DATA_DIR"] = given.data
    if not given.resume:
        shutil.rmtree(PARTS, ignore_errors=True)
    parts = Parts(PARTS, shlex.split(given.prefix))
    result: Json = {
        "command": shlex.join(["python", "benchmarks/communication.py", *(["--quick"] if given.quick else [])]),
        "date": now(),
        "machine": machine(),
        "rounds": 1,
        "versions": versions(Pythons(lockstep=sys.executable)),
        "choices": parts.measured("choices", {"steps": 20 if given.quick else 60}),
        "compressions": compressions(parts, given.quick),
    }
    result["others"] = parts.others
    pages.write(result, given.output)
    print(pages.markdown(result))


def compressions(parts: Parts, quick: bool) -> Json:
    """Measures all of them on each data set."""
    names = programs.QUICK_COMPRESSIONS if quick else programs.COMPRESSIONS
    return {
        data_set: {
            "source": programs.DATA[data_set](count)[-1],
            "epochs": epochs,
            "seeds": seeds,
            "by": {name: _compression(parts, data_set, name, (count, epochs, seeds)) for name in names},
        }
        for data_set, (count, epochs, seeds) in (_QUICK if quick else _FULL).items()
    }


def _compression(parts: Parts, data_set: str, name: str, sizes: tuple[int, int, int]) -> Json:
    count, epochs, seeds = sizes
    which = {"data_set": data_set, "compression": name, "limit": 600}
    trained = {**which, "count": count, "epochs": epochs}
    accuracies = [parts.measured("accuracy", {**trained, "seed": seed})["accuracy"] for seed in range(seeds)]
    return {**parts.measured("sent", {**which, **_WATCHED}), "accuracies": accuracies}


class Parts:
    """Measurements, each in processes of its own, and each in a file: none is repeated where one goes on.

    Args:
        directory: Of the files.
        prefix: Words before each command.

    Attributes:
        others: The largest part of the machine that other programs had in a measurement of time.
    """

    def __init__(self, directory: Path, prefix: list[str]) -> None:
        self._directory = directory
        self._prefix = prefix
        self.others = 0.0

    def measured(self, function: str, options: Json) -> Json:
        """Returns what a function of `measure` measures, or has measured with such options."""
        words = (function, *(f"{name}={value}" for name, value in options.items() if name != "limit"))
        path = self._directory / f"{', '.join(words).replace('/', ' ')}.json"
        if not path.exists():
            self._measure(function, options, path)
        found = json.loads(path.read_text())
        if function != "accuracy":
            self.others = max(self.others, found["others"])
        return found["measured"]

    def _measure(self, function: str, options: Json, path: Path) -> None:
        environment = variables("lockstep")
        if "LOCKSTEP_DATA_DIR" in os.environ:
            environment["LOCKSTEP_DATA_DIR"] = os.environ["LOCKSTEP_DATA_DIR"]
        limit = 700 + (3600.0 if self._prefix else 0.0)
        found = measure(self._prefix, sys.executable, _MODULE, function, options, environment, limit)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"measured": found.measured, "others": round(found.others, 3)}) + "\n")
        beside.replace(path)
        print(f"{path.stem}: others had {found.others:.0%} of the machine", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures how gradients travel; see benchmarks/README.md.")
    parser.add_argument("--quick", action="store_true", help="less of each")
    parser.add_argument("--resume", action="store_true", help=f"keep what is measured already: {PARTS}")
    parser.add_argument("--output", type=Path, default=RESULTS, help="directory (default: benchmarks/results)")
    parser.add_argument("--data", default=data_directory(), help="directory of mnist")
    parser.add_argument("--prefix", default="", help="words before each measured command, such as 'taskset -c 0,1'")
    return parser.parse_args()
