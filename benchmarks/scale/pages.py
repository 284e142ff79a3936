"""Table and plot of what scaling.py found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.report import heading

Json = Mapping[str, Any]
_SHOWN = ("1", "8", "64", "256", "1024")
_COLOURS = {"10 Gb/s": "#c05621", "100 Gb/s": "#2b6cb0", "400 Gb/s": "#2f855a"}


def write(result: Json, directory: Path) -> None:
    """Writes `scaling.json`, `scaling.md` and `scaling.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scaling.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "scaling.md").write_text(markdown(result))
    draw(result, directory / "scaling.svg")


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


def draw(result: Json, path: Path) -> None:
    """Writes the plot: a panel a workload, a line a network, and one for this machine."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    works = list(dict.fromkeys(p["work"] for p in result["predictions"]))
    with mpl.rc_context({"svg.hashsalt": "lockstep", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(13, 3.6), layout="constrained")
        panels = figure.subplots(1, len(works) + 1)
        for panel, work in zip(panels, works, strict=False):
            _curves(panel, [p for p in result["predictions"] if p["work"] == work])
        _here(panels[-1], result.get("local", []))
        figure.savefig(path, metadata={"Date": None})


def _curves(panel: Any, predictions: list[Json]) -> None:
    for p in predictions:
        workers = [int(n) for n in p["efficiency"]]
        label = f"{p['network']}{'' if p['overlap'] else ', no overlap'}"
        style = "-" if p["overlap"] else ":"
        panel.plot(workers, list(p["efficiency"].values()), style, color=_COLOURS[p["network"]], label=label)
    panel.set_xscale("log", base=2)
    panel.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
    panel.set(ylim=(0, 1.05), xlabel="workers", ylabel="efficiency", title=f"{predictions[0]['work']} (predicted)")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7)


def _here(panel: Any, local: list[Json]) -> None:
    workers = [str(f["workers"]) for f in local]
    places = range(len(workers))
    for offset, name, colour in ((-0.2, "predicted", "#a0aec0"), (0.2, "measured", "#2b6cb0")):
        panel.bar([p + offset for p in places], [1e3 * f[name] for f in local], 0.38, label=name, color=colour)
    panel.set_xticks(list(places), workers)
    panel.set(xlabel="workers of this machine", ylabel="ms a step", title="Multi-worker tutorial's CNN")
    if local:
        panel.legend(fontsize=7)
