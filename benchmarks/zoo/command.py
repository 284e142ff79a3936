"""The command line of the zoo."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import plots, report
from benchmarks.harness.case import KERAS, OURS, TENSORFLOW, Case, Environment, Side
from benchmarks.harness.environments import ROOT, Pythons, versions
from benchmarks.harness.gpu_command import device_name
from benchmarks.harness.machine import machine, now, processor
from benchmarks.harness.processes import end_with_children
from benchmarks.harness.rounds import Settings, run
from benchmarks.zoo import page, profile, together, workers
from benchmarks.zoo.measure import COLD, MEMORY, RATE, WARM, networks
from benchmarks.zoo.network import Network

RESULTS = ROOT / "benchmarks" / "results"
SIDES: Sequence[tuple[str, str, Environment]] = (
    (OURS, "lockstep", "lockstep"),
    (TENSORFLOW, "tensorflow", "tensorflow"),
    (KERAS, "keras_on_jax", "jax"),
)
_MEASURES: Mapping[str, dict[str, str]] = {
    "fit": {RATE: "in `fit`", MEMORY: "at most"},
    "start": {COLD: "first", WARM: "again"},
}


def main() -> None:
    """Measures, prints and writes."""
    end_with_children()
    given = _arguments()
    if given.profile:
        return profile.show(given.profile, given.lockstep)
    pythons = Pythons(lockstep=given.lockstep, tensorflow=given.tensorflow, plot=given.plot)
    settings = Settings(given.rounds, False, pythons, shlex.split(given.prefix), {"seconds": given.seconds}, tries=1)
    device = device_name(pythons.lockstep)
    if given.workers:
        return _of_workers(given, settings)
    path = together.result_path(given.output, device)
    former = json.loads(path.read_text()) if (given.networks or given.only) and path.exists() else {}
    kept = former.get("networks", {})
    result: dict[str, Any] = {
        "command": f"python benchmarks/zoo --together {given.together:g}"
        if given.together
        else "python benchmarks/zoo",
        "date": now(),
        "machine": {**machine(), **({} if device == "cpu" else {"device": device})},
        "rounds": 1 if given.together else given.rounds,
        "versions": {**former.get("versions", {}), **versions(pythons)},
        "networks": kept,
    }
    given.output.mkdir(parents=True, exist_ok=True)
    sides = [side for side in SIDES if side[1] in given.sides]
    names = given.networks or list(networks())
    if given.together:
        found = list(together.measure(names, sides, pythons, given.seconds, given.together))
        measured = [(name, _once(networks()[name], sides, found)) for name in names]
    else:
        formers = kept if given.only else {}
        measured = (
            (name, _measure(networks()[name], sides, settings, given.only, formers.get(name, {}))) for name in names
        )
    for name, rounds in measured:
        # A run of some networks leaves the figures of the others, which may be another machine's.
        result["networks"][name] = {"machine": processor() if device == "cpu" else device, **rounds}
        path.write_text(json.dumps(result, indent=1) + "\n")
        path.with_suffix(".md").write_text(page.markdown(result))
    plots.draw("zoo", path, pythons.plot)
    print(page.markdown(result))


def _of_workers(given: argparse.Namespace, settings: Settings) -> None:
    """Measures networks on several workers; prints and writes."""
    result: dict[str, Any] = {
        "kind": "workers",
        "command": f"python benchmarks/zoo --workers {','.join(map(str, given.workers))}",
        "date": now(),
        "machine": machine(),
        "rounds": given.rounds,
        "versions": versions(settings.pythons),
        "cases": [],
    }
    for case in workers.cases(given.networks or workers.DIFFERENT, given.workers, given.epochs):
        result["cases"].append(report.as_json(run(case, settings)))
        report.write(result, given.output, "zoo_workers")
    print(report.markdown(result))


def _measure(
    network: Network,
    sides: Sequence[tuple[str, str, Environment]],
    settings: Settings,
    only: str,
    former: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns every round of these sides: their names, words of the command line, and environments.

    What is not measured, because of `only`, is what it was in `former`.
    """
    measures = {function: metrics for function, metrics in _MEASURES.items() if only in ("", function)}
    done = [
        report.as_json(run(_case(network, sides, function, metrics), settings))
        for function, metrics in measures.items()
    ]
    new = {metric for metrics in measures.values() for metric in metrics}
    measured = {name: {"rounds": _without(new, former, name), "failure": ""} for name, _, _ in sides}
    for side in (side for case in done for side in case["sides"]):
        measured[side["name"]]["rounds"] += side["rounds"]
        measured[side["name"]]["failure"] = measured[side["name"]]["failure"] or side["failure"]
    entry = _entry(network, {**former.get("sides", {}), **measured})
    # The day and the machine are those of the rates.
    if only == "start" and former:
        entry |= {name: former.get(name, "") for name in ("date", "machine")}
    return entry


def _without(metrics: Collection[str], former: Mapping[str, Any], side: str) -> list[dict[str, float]]:
    """Returns a side's former rounds without these metrics."""
    rounds: list[dict[str, float]] = former.get("sides", {}).get(side, {}).get("rounds", [])
    others = [{name: value for name, value in each.items() if name not in metrics} for each in rounds]
    return [each for each in others if each]


def _once(
    network: Network,
    sides: Sequence[tuple[str, str, Environment]],
    found: Sequence[tuple[str, str, Mapping[str, float]]],
) -> dict[str, Any]:
    """Returns the one round of these sides that was measured with other networks'."""
    by_side = {title: measured for name, title, measured in found if name == network.name}
    missing = {"rounds": [], "failure": "not ready in time, or failed"}
    return _entry(
        network,
        {title: {"rounds": [by_side[title]], "failure": ""} if title in by_side else missing for title, _, _ in sides},
    )


def _entry(network: Network, sides: dict[str, Any]) -> dict[str, Any]:
    return {"title": network.title, "batch": network.batch, "date": now(), "sides": sides}


def _case(
    network: Network, sides: Sequence[tuple[str, str, Environment]], function: str, metrics: dict[str, str]
) -> Case:
    taking_part = [
        Side(name, function, environment, "ours" if name == OURS else "peer", {"side": side, "network": network.name})
        for name, side, environment in sides
    ]
    return Case(9, network.name, network.title, "benchmarks.zoo.measure", metrics, taking_part)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the zoo; see benchmarks/README.md.")
    add = parser.add_argument
    add("--networks", type=_names, default=[], help="names, with commas (default: all)")
    add("--profile", choices=sorted(networks()), metavar="NAME", help="show where the time of a network's step goes")
    add("--rounds", type=int, default=3, help="how often each side runs (default: 3)")
    add("--seconds", type=float, default=6.0, help="how long each measures (default: 6)")
    add("--sides", type=_side_names, default=[side for _, side, _ in SIDES], help="names, with commas (default: all)")
    add("--only", choices=_MEASURES, default="", help="measure `fit` or the first step, and keep the other's figures")
    add("--together", type=float, default=0.0, metavar="MINUTES", help="compile all at once, measure one by one")
    add("--workers", type=_counts, default=[], help="so many workers of this machine, such as 2,4: zoo_workers.*")
    add("--epochs", type=int, default=4, help="how long each measures with --workers (default: 4)")
    add("--output", type=Path, default=RESULTS, help="directory (default: benchmarks/results)")
    add("--prefix", default="", help="words before each measured command, such as 'taskset -c 0,1'")
    for name in ("lockstep", "tensorflow", "plot"):
        default = getattr(Pythons(), name)
        add(f"--{name}", default=default, metavar="PYTHON", help=f"interpreter (default: {default})")
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    return [int(count) for count in text.split(",")]


def _side_names(text: str) -> list[str]:
    there, names = [side for _, side, _ in SIDES], text.split(",")
    if not set(names) <= set(there):
        raise argparse.ArgumentTypeError(f"sides are {', '.join(there)}; received {text!r}")
    return names


def _names(text: str) -> list[str]:
    """Returns the names in a list with commas; names of networks may have commas of their own."""
    left, names = text, []
    while left:
        name = next((n for n in sorted(networks(), key=len, reverse=True) if left.startswith(n)), None)
        if name is None:
            raise argparse.ArgumentTypeError(f"networks are {'; '.join(networks())}; received {left!r}")
        names.append(name)
        left = left[len(name) :].lstrip(", ")
    return names
