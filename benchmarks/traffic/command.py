"""The command line of `communication.py`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.command import RESULTS, data_directory
from benchmarks.harness.environments import Pythons, variables, versions
from benchmarks.harness.machine import machine, now
from benchmarks.harness.processes import end_with_children, measure
from benchmarks.traffic import pages, programs

Json = dict[str, Any]
_MODULE = "benchmarks.traffic.measure"
# Of each data set: how many examples, epochs and seeds.
_FULL = {"digits": (60_000, 4, 3), "pictures": (12_800, 6, 3), "photographs": (1_000, 40, 3)}
_QUICK = {"digits": (12_800, 3, 2), "pictures": (6_400, 4, 2)}


def main() -> None:
    """Measures and writes."""
    end_with_children()
    given = _arguments()
    if given.data:
        os.environ["LOCKSTEP_DATA_DIR"] = given.data
    steps = 20 if given.quick else 60
    result: Json = {
        "command": shlex.join(["python", "benchmarks/communication.py", *(["--quick"] if given.quick else [])]),
        "date": now(),
        "machine": machine(),
        "rounds": 1,
        "versions": versions(Pythons()),
        "choices": _run("choices", {"steps": steps}, given),
        "compressions": {name: _compressions(name, given) for name in _data_sets(given)},
    }
    pages.write(result, given.output)
    print(pages.markdown(result))


def _data_sets(given: argparse.Namespace) -> list[str]:
    there = Path(os.environ.get("LOCKSTEP_DATA_DIR", "nowhere")) / "cats_vs_dogs"
    return [name for name in (_QUICK if given.quick else _FULL) if name != "photographs" or there.is_dir()]


def _compressions(data_set: str, given: argparse.Namespace) -> Json:
    count, epochs, seeds = (_QUICK if given.quick else _FULL)[data_set]
    options = {"data_set": data_set, "count": count, "epochs": epochs, "seeds": seeds, "limit": 600}
    names = programs.QUICK_COMPRESSIONS if given.quick else programs.COMPRESSIONS
    by = {name: _run("compression", {**options, "compression": name}, given) for name in names}
    *_, source = programs.DATA[data_set](count)
    return {"source": source, "epochs": epochs, "seeds": seeds, "by": by}


def _run(function: str, options: Json, given: argparse.Namespace) -> Json:
    environment = variables("lockstep")
    if "LOCKSTEP_DATA_DIR" in os.environ:
        environment["LOCKSTEP_DATA_DIR"] = os.environ["LOCKSTEP_DATA_DIR"]
    prefix = shlex.split(given.prefix)
    limit = 700 + (3600.0 if prefix else 0.0)
    result = measure(prefix, sys.executable, _MODULE, function, options, environment, limit)
    said = f"{function} {options.get('data_set', '')} {options.get('compression', '')}".strip()
    print(f"{said}: others had {result.others:.0%} of the machine", file=sys.stderr, flush=True)
    return dict(result.measured)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures how gradients travel; see benchmarks/README.md.")
    parser.add_argument("--quick", action="store_true", help="less of each")
    parser.add_argument("--output", type=Path, default=RESULTS, help="directory (default: benchmarks/results)")
    parser.add_argument("--data", default=data_directory(), help="directory of mnist and cats_vs_dogs")
    parser.add_argument("--prefix", default="", help="words before each measured command, such as 'taskset -c 0,1'")
    return parser.parse_args()
