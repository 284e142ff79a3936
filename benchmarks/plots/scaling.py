"""The plot of `scaling.py`: efficiency over the number of workers, and what was measured here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

Json = Mapping[str, Any]
_COLOURS = {"10 Gb/s": "#c05621", "100 Gb/s": "#2b6cb0", "400 Gb/s": "#2f855a"}


def draw(result: Json, path: Path) -> None:
    """Writes the plot: a panel a workload, a line a network, and one for this machine."""
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
