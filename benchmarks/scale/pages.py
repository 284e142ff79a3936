"""Table and plot of what scaling.py found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.report import heading

Json = Mapping[str, Any]
_SHOWN = ("1", "8", "64", "256", "1024")


def write(result: Json, directory: Path) -> None:
    """Writes `scaling.json` and `scaling.md`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scaling.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "scaling.md").write_text(markdown(result))


def markdown(result: Json) -> str:
    """Returns the tables."""
    parts = ["# Scale on paper", *heading({**result, "cases": []})[:1]]
    parts += [f"`{result['command']}`. The model: `benchmarks/scale/model.py`.", _local(result), _predicted(result)]
    return "\n\n".join(parts) + "\n"


def _local(result: Json) -> str:
    lines = [
        "## Here: what the model says of workers of this machine, and what they do",
        "",
        "| workers | compute | x slowest | all-reduce | predicted step | measured step | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in result.get("local", []):
        milliseconds = [f"{1e3 * found[n]:.1f} ms" for n in ("alone", "all_reduce", "predicted", "measured")]
        compute, reduce, predicted, measured = milliseconds
        cells = [str(found["workers"]), compute, f"{found['slowest']:.2f}", reduce, predicted, measured]
        lines.append(f"| {' | '.join(cells)} | {found['error']:+.0%} |")
    notes = [
        "Compute: the multi-worker tutorial's network, 64 examples each, so many processes at once without talking.",
        "Slowest: how much later the last of so many is, from times of single steps; 1 where workers share cores.",
        "All-reduce: 11.1 MB at the latency and bandwidth that fit the measured all-reduces best:",
    ]
    return "\n".join([*lines, "", *(f"* {note}" for note in notes), "", *_fits(result)])


def _fits(result: Json) -> list[str]:
    found = [f for f in result.get("local", []) if f["latency"] is not None]
    if not found:
        return []
    sizes = list(found[0]["all_reduces"])
    head = [f"{_bytes(int(size))}" for size in sizes]
    lines = [f"| workers | latency | bandwidth | {' | '.join(head)} |", "|---|---|---|" + "---|" * len(head)]
    for f in found:
        times = [f"{1e3 * f['all_reduces'][size]:.2f} ms" for size in sizes]
        fitted = f"{1e6 * f['latency']:.0f} us | {f['bandwidth'] / 1e9:.2f} GB/s"
        lines.append(f"| {f['workers']} | {fitted} | {' | '.join(times)} |")
    return lines


def _bytes(size: int) -> str:
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"


def _predicted(result: Json) -> str:
    lines = [
        "## There: efficiency of N workers of one GPU each, the same batch per worker (weak scaling)",
        "",
        f"| | step | gradients | network | {' | '.join(_SHOWN)} | {_SHOWN[-1]}, no overlap | {_SHOWN[-1]}, bfloat16 |",
        "|---|---|---|---|" + "---|" * (len(_SHOWN) + 2),
    ]
    without = {(p["work"], p["network"]): p["efficiency"] for p in result["predictions"] if not p["overlap"]}
    for p in result["predictions"]:
        if p["overlap"]:
            cells = [f"{p['efficiency'][n]:.0%}" for n in _SHOWN]
            work = f"{p['work']} | {1e3 * p['step']:.0f} ms | {p['bytes'] / 1e6:,.0f} MB | {p['network']}"
            cells += [f"{without[p['work'], p['network']][_SHOWN[-1]]:.0%}", f"{p['half'][_SHOWN[-1]]:.0%}"]
            lines.append(f"| {work} | {' | '.join(cells)} |")
    sources = {p["work"]: p["source"] for p in result["predictions"]}
    networks = {p["network"]: (p["latency"], p["bandwidth"]) for p in result["predictions"]}
    lines += ["", "These are predictions, not measurements. They rest on:", ""]
    lines += [f"* {work}: {source}; gradients in float32." for work, source in sources.items()]
    lines += [
        f"* {n}: {1e6 * a:.0f} us a hop, {b * 8 / 1e9:.0f} Gb/s usable; assumed." for n, (a, b) in networks.items()
    ]
    deviation = result["predictions"][0]["deviation"]
    lines.append(f"* Step times of workers: normal, standard deviation {deviation:.0%} of the mean; assumed.")
    return "\n".join(lines)
