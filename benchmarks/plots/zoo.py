"""The plot of the zoo: bars for each network, worst first, where 1 is as fast as TensorFlow 2.15 or Keras on JAX."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

Json = Mapping[str, Any]
_PEERS = {"TensorFlow 2.15": "#2b6cb0", "Keras on JAX": "#a0aec0"}


def draw(result: Json, path: Path) -> None:
    """Writes an SVG."""
    ratios = {
        name: [_ratio(network, peer) for peer in _PEERS]
        for name, network in result["networks"].items()
        if any(_ratio(network, peer) for peer in _PEERS)
    }
    if not ratios:
        return
    names = sorted(ratios, key=lambda name: next(filter(None, ratios[name])))
    with mpl.rc_context({"svg.hashsalt": "lockstep", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(9, 0.3 * len(names) + 1), layout="constrained")
        panel = figure.subplots()
        for number, (peer, colour) in enumerate(_PEERS.items()):
            places = [place + 0.38 * (number - 0.5) for place in range(len(names))]
            bars = panel.barh(places, [ratios[n][number] or 0.0 for n in names], 0.36, color=colour, label=f"x {peer}")
            panel.bar_label(bars, fmt="%.2f", padding=2, fontsize=6)
        panel.set_yticks(range(len(names)), names)
        panel.invert_yaxis()
        panel.axvline(1.0, color="#c53030", linewidth=1)
        panel.set_xscale("log")
        panel.set_xlabel("examples/s of lockstep over the peer's, medians")
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(loc="lower right")
        figure.savefig(path, metadata={"Date": None})


def _ratio(network: Json, peer: str) -> float | None:
    ours, theirs = (_rate(network, side) for side in ("lockstep", peer))
    return ours / theirs if ours and theirs else None


def _rate(network: Json, side: str) -> float | None:
    values = [r["examples/s"] for r in network["sides"].get(side, {"rounds": []})["rounds"] if "examples/s" in r]
    return statistics.median(values) if values else None
