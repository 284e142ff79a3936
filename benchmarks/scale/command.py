"""The command line of `scaling.py`."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import data, plots
from benchmarks.harness.command import RESULTS, data_directory
from benchmarks.harness.environments import Pythons, variables, versions
from benchmarks.harness.machine import cores, machine, now
from benchmarks.harness.processes import end_with_children, measure
from benchmarks.scale import pages
from benchmarks.scale.model import all_reduce, efficiency, fit_line, slowest_of_samples
from benchmarks.scale.workloads import NETWORKS, WORKERS, workloads

Json = dict[str, Any]
LOCAL = (1, 2, 4)
# Gradients of the multi-worker tutorial's network: 2,771,018 parameters of four bytes.
LOCAL_BYTES = 2_771_018 * 4


def main() -> None:
    """Measures, predicts and writes."""
    end_with_children()
    given = _arguments()
    result: Json = {
        "command": shlex.join(["python", "benchmarks/scaling.py", *(["--quick"] if given.quick else [])]),
        "date": now(),
        "machine": machine(),
        "rounds": given.rounds,
        "versions": versions(Pythons(lockstep=sys.executable)),
        "predictions": predictions(RESULTS / "gpu.json"),
    }
    earlier = RESULTS / "scaling.json"
    if given.paper_only and earlier.exists():
        kept = json.loads(earlier.read_text())
        result |= {name: kept[name] for name in ("local", "rounds", "date", "machine", "versions") if name in kept}
    elif not given.paper_only:
        result["local"] = _local(given)
    pages.write(result, given.output)
    plots.draw("scaling", given.output / "scaling.json", Pythons().plot)
    print(pages.markdown(result))


def predictions(measured: Path) -> list[Json]:
    """Efficiency of each workload on each network, with and without overlap, for each number of workers."""
    return [
        {
            "work": work.name,
            "step": work.step,
            "bytes": work.bytes,
            "deviation": work.deviation,
            "source": work.source,
            "network": network.name,
            "latency": network.latency,
            "bandwidth": network.bandwidth,
            "overlap": overlap,
            "efficiency": {str(n): efficiency(work, n, network, overlap) for n in WORKERS},
            "half": {str(n): efficiency(replace(work, bytes_each=2), n, network, overlap) for n in WORKERS},
        }
        for work in workloads(measured)
        for network in NETWORKS
        for overlap in (True, False)
    ]


def _local(given: argparse.Namespace) -> list[Json]:
    """Predicts and measures 1, 2 and 4 workers of this machine, in turn."""
    with tempfile.TemporaryDirectory() as prepared:
        data.prepare(Path(prepared), {"digits"}, given.data)
        told = {
            "data": prepared,
            "epochs": 2 if given.quick else 4,
            "repeats": 60 if given.quick else 200,
            "limit": 240,
        }
        rounds = [_round(told, given) for _ in range(given.rounds)]
    return [_compared(workers, [r[workers] for r in rounds]) for workers in LOCAL]


def _round(told: Mapping[str, Any], given: argparse.Namespace) -> dict[int, Json]:
    found: dict[int, Json] = {}
    for workers in LOCAL:
        options = {**told, "workers": workers}
        found[workers] = {
            "alone": _run("alone", options, given)["steps/s"],
            "joined": _run("joined", options, given)["steps/s"],
            "samples": _run("skew", options, given)["samples"],
            "all_reduces": _run("all_reduces", options, given) if workers > 1 else {},
        }
    return found


def _run(function: str, options: Json, given: argparse.Namespace) -> Mapping[str, Any]:
    prefix = shlex.split(given.prefix)
    limit = 300 + (3600.0 if prefix else 0.0)
    module, own = "benchmarks.scale.measure", variables("lockstep")
    result = measure(prefix, sys.executable, module, function, options, own, limit)
    said = f"{options['workers']} workers, {function}: others had {result.others:.0%} of the machine"
    print(said, file=sys.stderr, flush=True)
    return result.measured


def _compared(workers: int, rounds: list[Json]) -> Json:
    """Predicts a step from its parts, and puts it beside the measured one; seconds, medians over rounds."""
    alone, joined = (1 / statistics.median(r[name] for r in rounds) for name in ("alone", "joined"))
    samples = [s for r in rounds for s in r["samples"]]
    # Workers that share a core do not wait in vain: what one leaves, another takes, and "alone" has that in it.
    slowest = slowest_of_samples(samples, workers) if workers <= cores() else 1.0
    sizes = sorted(int(size) for size in rounds[0]["all_reduces"])
    seconds = [statistics.median(r["all_reduces"][str(size)] for r in rounds) for size in sizes]
    network = fit_line(sizes, seconds, workers) if workers > 1 else None
    reduce = all_reduce(LOCAL_BYTES, workers, network) if network else 0.0
    predicted = alone * slowest + reduce
    return {
        "workers": workers,
        "alone": alone,
        "slowest": slowest,
        "latency": network.latency if network else None,
        "bandwidth": network.bandwidth if network else None,
        "all_reduces": dict(zip(map(str, sizes), seconds, strict=True)),
        "all_reduce": reduce,
        "predicted": predicted,
        "measured": joined,
        "error": predicted / joined - 1,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures and predicts scaling; see benchmarks/README.md.")
    parser.add_argument("--quick", action="store_true", help="less of each")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: 3)")
    parser.add_argument("--paper-only", action="store_true", help="measure nothing; keep what was measured before")
    parser.add_argument("--output", type=Path, default=RESULTS, help="directory (default: benchmarks/results)")
    parser.add_argument("--data", default=data_directory(), help="directory of mnist (default: LOCKSTEP_DATA_DIR)")
    parser.add_argument("--prefix", default="", help="words before each measured command, such as 'taskset -c 0,1'")
    return parser.parse_args()
