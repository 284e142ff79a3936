"""The plot of a run: a panel a case, lockstep's bars in colour, and where the bar and the aim are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

Json = Mapping[str, Any]
_COLOURS = {"ours": "#2b6cb0", "peer": "#a0aec0", "ceiling": "#e2e8f0"}
_COLUMNS = 2


def draw(result: Json, path: Path) -> None:
    """Writes an SVG."""
    shown = [case for case in result["cases"] if any(side["rounds"] for side in case["sides"])]
    if not shown:
        return
    rows = math.ceil(len(shown) / _COLUMNS)
    with mpl.rc_context({"svg.hashsalt": "lockstep", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(12, 2.3 * rows + 0.5), layout="constrained")
        panels = list(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
        for panel, case in zip(panels, shown, strict=False):
            _panel(panel, case)
        for panel in panels[len(shown) :]:
            panel.set_axis_off()
        machine = result["machine"]
        where = machine.get("device", f"{machine['cores']} cores of {machine['processor']}")
        figure.suptitle(f"{result['date']}, {where}. Medians; whiskers: all rounds")
        figure.savefig(path, metadata={"Date": None})


def _panel(panel: Any, case: Json) -> None:
    metric = next(iter(case["metrics"]))
    sides = [side for side in case["sides"] if any(metric in r for r in side["rounds"])]
    values = [[r[metric] for r in side["rounds"] if metric in r] for side in sides]
    medians = [statistics.median(v) for v in values]
    spans = [[m - min(v) for m, v in zip(medians, values, strict=True)]]
    spans.append([max(v) - m for m, v in zip(medians, values, strict=True)])
    names = [side["name"] for side in sides]
    colours = [_COLOURS[side["role"]] for side in sides]
    bars = panel.barh(names, medians, xerr=spans, color=colours, ecolor="#4a5568", capsize=2)
    panel.bar_label(bars, [f"{m:,.3g}" if m < 1000 else f"{m:,.0f}" for m in medians], padding=4)
    panel.invert_yaxis()
    panel.margins(x=0.15)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_title(f"Row {case['row']}, {case['name']}: {metric}", loc="left", fontweight="bold")
    _limits(panel, case, metric, dict(zip(names, medians, strict=True)))


def _limits(panel: Any, case: Json, metric: str, medians: Mapping[str, float]) -> None:
    """Lines where lockstep's bar must end: each where the demand that asks for most puts it."""
    must = _hardest(case, ("must",), metric, medians)
    aim = _hardest(case, ("aim", "must"), metric, medians)
    for place, name, style in ((must, "bar", "-"), (aim if aim != must else None, "aim", ":")):
        if place is not None:
            panel.axvline(place, color="#c53030", linestyle=style, linewidth=1)
            panel.annotate(
                name, (place, 1), xycoords=("data", "axes fraction"), color="#c53030", ha="center", va="bottom"
            )


def _hardest(case: Json, names: Sequence[str], metric: str, medians: Mapping[str, float]) -> float | None:
    limits = [(bar, next((bar[n] for n in names if bar[n] is not None), None)) for bar in case["bars"]]
    places = [_place(bar, limit, metric, medians) for bar, limit in limits if limit is not None]
    found = [p for p in places if p is not None]
    if not found:
        return None
    return min(found) if case["bars"][0]["at_most"] else max(found)


def _place(bar: Json, limit: float, metric: str, medians: Mapping[str, float]) -> float | None:
    if bar["ours"][1] != metric:
        return None
    if bar["how"] == "value":
        return limit
    theirs = [medians[side] for side, its in bar["theirs"] if its == metric and side in medians]
    if bar["how"] != "ratio" or len(theirs) < len(bar["theirs"]):
        return None
    return limit * (min(theirs) if bar["at_most"] else max(theirs))
