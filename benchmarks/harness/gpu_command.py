"""The command line of `gpu.py`."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import data, plots, report
from benchmarks.harness.command import RESULTS, data_directory
from benchmarks.harness.environments import ROOT, Pythons, variables, versions
from benchmarks.harness.machine import machine, now
from benchmarks.harness.processes import end_with_children
from benchmarks.harness.rounds import Settings, run
from benchmarks.rows import gpu

_FULL = {"seconds": 8.0}
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
    chosen = [c for c in cases if not given.cases or c.name in given.cases.split(",")]
    with tempfile.TemporaryDirectory() as prepared:
        needs = {need for case in chosen for need in case.needs}
        result: dict[str, Any] = {
            "kind": kind,
            "device": name,
            "command": shlex.join(["python", "benchmarks/gpu.py", *(["--smoke"] if given.smoke else [])]),
            "date": now(),
            "machine": {**machine(), "device": name},
            "rounds": given.rounds,
            "versions": versions(pythons),
            "data": data.prepare(Path(prepared), needs, given.data),
            "cases": [],
        }
        options = {**(_SMOKE if given.smoke else _FULL), "data": prepared}
        settings = Settings(given.rounds, given.smoke, pythons, shlex.split(given.prefix), options, tries=1)
        for case in chosen:
            result["cases"].append(report.as_json(run(case, settings)))
            report.write(result, directory, kind)
    return result


def device_name(python: str) -> str:
    """Returns the name of the first GPU that jax sees, or `cpu`."""
    code = "import jax; d = jax.devices()[0]; print('cpu' if d.platform == 'cpu' else d.device_kind)"
    done = subprocess.run([python, "-c", code], env=variables("jax"), capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures lockstep on one GPU; see benchmarks/README.md.")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on any device")
    parser.add_argument("--cases", help="names, with commas (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs (default: 3)")
    parser.add_argument("--output", type=Path, help="directory (default: benchmarks/results; smoke: runs/benchmarks)")
    parser.add_argument("--data", default=data_directory(), help="directory of mnist (default: LOCKSTEP_DATA_DIR)")
    parser.add_argument("--prefix", default="", help="words before each measured command")
    for name in ("lockstep", "torch", "plot"):
        default = getattr(Pythons(), name)
        parser.add_argument(f"--{name}", default=default, metavar="PYTHON", help=f"interpreter (default: {default})")
    return parser.parse_args()
