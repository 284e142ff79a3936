"""The command line of `run.py`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import data, plots, report
from benchmarks.harness.case import Case
from benchmarks.harness.environments import ROOT, Pythons, versions
from benchmarks.harness.machine import machine, now
from benchmarks.harness.processes import end_with_children
from benchmarks.harness.rounds import Settings, run

_MODULES = ("estimator", "mlp", "networks", "workers", "input", "start", "memory", "parameter_servers", "tape")
RESULTS, README = ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "README.md"
# What each side is told: seconds, and counts of what it measures.
_FULL = {"seconds": 6.0, "epochs": 4, "passes": 5, "starts": 3, "pairs": 60}
_QUICK = {"seconds": 2.0, "epochs": 2, "passes": 3, "starts": 2, "pairs": 10}


def cases(rows: set[int]) -> list[Case]:
    """Returns the cases of these rows, in order; of all rows if there are none."""
    modules = [importlib.import_module(f"benchmarks.rows.{name}") for name in _MODULES]
    found = [case for module in modules for case in module.CASES if not rows or case.row in rows]
    return sorted(found, key=lambda case: case.row)


def main() -> None:
    """Measures, prints and writes."""
    end_with_children()
    given = _arguments()
    if given.render:
        result = json.loads(given.render.read_text())
        return _finish(result, given.render.parent, given.plot)
    directory = given.output or (ROOT / "runs" / "benchmarks" if given.rows and not given.update else RESULTS)
    result = _measure(cases(given.rows), given, directory)
    print(report.markdown(result))
    _finish(result, directory, given.plot)
    print(f"Written: {directory}")


def _measure(chosen: list[Case], given: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Measures one case after another; what there is of the result is written after each."""
    pythons = Pythons(lockstep=given.lockstep, tensorflow=given.tensorflow, torch=given.torch)
    kind, counts = ("quick", _QUICK) if given.quick else ("full", _FULL)
    with tempfile.TemporaryDirectory() as prepared:
        result = {
            "kind": kind,
            "command": _command(given),
            "date": now(),
            "machine": machine(),
            "rounds": given.rounds,
            "versions": versions(pythons),
            "data": data.prepare(Path(prepared), {need for case in chosen for need in case.needs}, given.data),
            "cases": [],
        }
        settings = Settings(
            rounds=given.rounds,
            quick=given.quick,
            pythons=pythons,
            prefix=shlex.split(given.prefix),
            options={**counts, "data": prepared},
            tries=given.tries,
            wait=3600.0 if given.prefix else 0.0,
        )
        earlier = _earlier(directory / f"{kind}.json", chosen) if given.update else []
        for case in chosen:
            measured = {**report.as_json(run(case, settings)), "date": now(), "rounds": given.rounds}
            result["cases"] = sorted([*earlier, *result["cases"], measured], key=lambda c: c["row"])
            earlier = []
            report.write(result, directory, kind)
    return result


def _earlier(path: Path, chosen: list[Case]) -> list[dict[str, Any]]:
    """The cases of an earlier result that are not measured now."""
    names = {case.name for case in chosen}
    return [c for c in json.loads(path.read_text())["cases"] if c["name"] not in names] if path.exists() else []


def _finish(result: dict[str, Any], directory: Path, python: str) -> None:
    """Writes tables and plot; a complete run also goes into the README."""
    report.write(result, directory, result["kind"])
    plots.draw("rows", directory / f"{result['kind']}.json", python)
    rows = {case["row"] for case in result["cases"]}
    if directory.resolve() == RESULTS and result["kind"] == "full" and rows >= set(range(1, 8)):
        report.publish(result, README)


def _command(given: argparse.Namespace) -> str:
    """What somebody else would type: without where this machine has its interpreters."""
    own = ["--quick"] if given.quick else []
    own += ["--rows", ",".join(map(str, sorted(given.rows)))] if given.rows else []
    own += ["--rounds", str(given.rounds)] if given.rounds != _rounds(given.quick) else []
    own += ["--update"] if given.update else []
    return shlex.join(["python", "benchmarks/run.py", *own])


def _rounds(quick: bool) -> int:
    return 2 if quick else 5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures lockstep and its peers in turn; see benchmarks/README.md.")
    add = parser.add_argument
    add("--rows", type=_row_numbers, default=set(), help="numbers of rows, with commas (default: all)")
    add("--quick", action="store_true", help="fewer rounds, fewer sides, less of each")
    add("--rounds", type=_positive, help="how often each side runs (default: 5, quick: 2)")
    add("--tries", type=_positive, default=3, help="measure so often if others use the machine meanwhile (default: 3)")
    add("--output", type=Path, help="directory (default: benchmarks/results; some rows: runs/benchmarks)")
    add("--data", default=data_directory(), help="directory of mnist and cats_vs_dogs (default: LOCKSTEP_DATA_DIR)")
    add("--prefix", default="", help="words before each measured command, such as 'taskset -c 0,1'")
    add("--update", action="store_true", help="replace these rows in the result that is there")
    add("--render", type=Path, metavar="JSON", help="only make tables and plot of an earlier run")
    for name in ("lockstep", "tensorflow", "torch", "plot"):
        default = getattr(Pythons(), name)
        add(f"--{name}", default=default, metavar="PYTHON", help=f"interpreter (default: {default})")
    given = parser.parse_args()
    given.rounds = given.rounds or _rounds(given.quick)
    return given


def _row_numbers(text: str) -> set[int]:
    there = {case.row for case in cases(set())}
    numbers = {int(part) for part in text.split(",") if part.strip().isdigit()}
    if not numbers or not numbers <= there or len(numbers) != len(text.split(",")):
        shown = ", ".join(map(str, sorted(there)))
        raise argparse.ArgumentTypeError(f"rows are numbers, with commas, of {shown}; received {text!r}")
    return numbers


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on; received {text!r}")
    return int(text)


def data_directory() -> str | None:
    beside = ROOT.parent / "shared" / "data"
    return os.environ.get("LOCKSTEP_DATA_DIR") or (str(beside) if (beside / "mnist").is_dir() else None)
