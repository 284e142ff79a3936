"""The command line of `gpu.py`."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import data, plots, report
from benchmarks.harness.case import OURS, Case
from benchmarks.harness.command import RESULTS, data_directory
from benchmarks.harness.environments import ROOT, Pythons, variables, versions
from benchmarks.harness.machine import machine, now
from benchmarks.harness.processes import end_with_children
from benchmarks.harness.rounds import Settings, run
from benchmarks.rows import gpu

_SMOKE = {"seconds": 0.2}


def main() -> None:
    """Measures, prints and writes."""
    end_with_children()
    given = _arguments()
    pythons = Pythons(lockstep=given.lockstep, torch=given.torch)
    if (missing := pythons.missing("lockstep")) is not None:
        sys.exit(f"Nothing can be measured: {missing}.")
    name = device_name(pythons.lockstep)
    if name == "cpu" and not given.smoke:
        sys.exit("There is no GPU that jax sees here. `--smoke` tries the path on the CPU; figures need a GPU.")
    directory = given.output or (ROOT / "runs" / "benchmarks" if given.smoke else RESULTS)
    result = _measure(given, pythons, name, directory)
    plots.draw("rows", directory / f"{result['kind']}.json", given.plot)
    print(report.markdown(result))


def _measure(given: argparse.Namespace, pythons: Pythons, name: str, directory: Path) -> dict[str, Any]:
    kind = "smoke" if given.smoke else "gpu"
    cases = gpu.cases("cpu" if name == "cpu" else "cuda", given.smoke)
    chosen = _chosen(cases, given.cases, given.sides)
    with tempfile.TemporaryDirectory() as prepared:
        needs = {need for case in chosen for need in case.needs}
        result: dict[str, Any] = {
            "kind": kind,
            "device": name,
            "command": _command(given),
            "date": now(),
            "machine": {**machine(), "device": name},
            "rounds": given.rounds,
            "versions": versions(pythons),
            "data": data.prepare(Path(prepared), needs, given.data),
            "cases": [],
        }
        options = {**(_SMOKE if given.smoke else {"seconds": given.seconds}), "data": prepared}
        settings = Settings(given.rounds, given.smoke, pythons, shlex.split(given.prefix), options, tries=1)
        for case in chosen:
            result["cases"].append(report.as_json(run(case, settings)))
            report.write(result, directory, kind)
    return result


def _command(given: argparse.Namespace) -> str:
    """Returns the command to measure the same elsewhere: without this machine's paths."""
    chosen = [("--cases", given.cases), ("--sides", given.sides)]
    if not given.smoke:
        chosen.append(("--seconds", f"{given.seconds:g}"))
    words = [word for name, value in chosen if value for word in (name, value)]
    smoke = ["--smoke"] if given.smoke else []
    return shlex.join(["python", "benchmarks/gpu.py", *smoke, *words, "--rounds", str(given.rounds)])


def _chosen(cases: Sequence[Case], names: str, sides: str) -> list[Case]:
    """Returns the cases with these names, in their order, and of each the sides with these; all without names."""
    by_name = {case.name: case for case in cases}
    wanted = names.split(",") if names else list(by_name)
    if unknown := [name for name in wanted if name not in by_name]:
        sys.exit(f"--cases takes names of {', '.join(by_name)}. Received: {', '.join(unknown)}.")
    if not sides:
        return [by_name[name] for name in wanted]
    known = {side.name for case in cases for side in case.sides}
    if unknown := [name for name in sides.split(",") if name not in known]:
        sys.exit(f"--sides takes names of {', '.join(sorted(known))}. Received: {', '.join(unknown)}.")
    taken = {OURS, *sides.split(",")}
    return [
        replace(by_name[name], sides=[side for side in by_name[name].sides if side.name in taken]) for name in wanted
    ]


def device_name(python: str) -> str:
    """Returns the name of the first GPU that jax sees, or `cpu`."""
    code = "import jax; d = jax.devices()[0]; print('cpu' if d.platform == 'cpu' else d.device_kind)"
    done = subprocess.run([python, "-c", code], env=variables("jax"), capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures lockstep on one GPU; see benchmarks/README.md.")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on any device")
    parser.add_argument("--cases", default="", help="names, with commas, in this order (default: all)")
    parser.add_argument("--sides", default="", help="peers beside lockstep, by name, with commas (default: all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each side is measured (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs (default: 3)")
    parser.add_argument("--output", type=Path, help="directory (default: benchmarks/results; smoke: runs/benchmarks)")
    parser.add_argument("--data", default=data_directory(), help="directory of mnist (default: LOCKSTEP_DATA_DIR)")
    parser.add_argument("--prefix", default="", help="words before each measured command")
    for name in ("lockstep", "torch", "plot"):
        default = getattr(Pythons(), name)
        parser.add_argument(f"--{name}", default=default, metavar="PYTHON", help=f"interpreter (default: {default})")
    return parser.parse_args()
