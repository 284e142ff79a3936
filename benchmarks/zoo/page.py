"""The zoo's table: the worst network first, nothing left out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.case import KERAS, OURS, TENSORFLOW
from benchmarks.harness.report import heading
from benchmarks.zoo.measure import COLD, MEMORY, RATE, WARM

Json = Mapping[str, Any]


def median(network: Json, side: str, metric: str) -> float | None:
    """Returns the median over a side's rounds, or `None` if it was not measured."""
    rounds = network["sides"].get(side, {"rounds": []})["rounds"]
    values = [r[metric] for r in rounds if metric in r]
    return statistics.median(values) if values else None


def ratio(network: Json, side: str, metric: str) -> float | None:
    """Returns lockstep's median over another side's."""
    ours, theirs = (median(network, name, metric) for name in (OURS, side))
    return ours / theirs if ours and theirs else None


def by_ratio(result: Json) -> list[tuple[str, Json]]:
    """Returns the networks by their rate beside TensorFlow's, or else Keras'; those that failed come first."""

    def beside(network: Json) -> float:
        return ratio(network, TENSORFLOW, RATE) or ratio(network, KERAS, RATE) or 0.0

    return sorted(result["networks"].items(), key=lambda item: beside(item[1]))


# Columns: a title, whom lockstep is compared with, and by what.
_RATIOS = (
    ("x TensorFlow 2.15", TENSORFLOW, RATE),
    ("x Keras on JAX", KERAS, RATE),
    ("first step cold, x Keras", KERAS, COLD),
    ("warm, x Keras", KERAS, WARM),
    ("memory, x Keras", KERAS, MEMORY),
)


def markdown(result: Json) -> str:
    """Returns the page."""
    named = by_ratio(result)
    lines = [_row("network", "batch", "examples/s", *(title for title, _, _ in _RATIOS), "measured"), "|---" * 9 + "|"]
    for name, network in named:
        rate = median(network, OURS, RATE)
        ratios = [_number(ratio(network, side, metric)) for _, side, metric in _RATIOS]
        lines.append(
            _row(name, str(network["batch"]), "–" if rate is None else f"{rate:,.0f}", *ratios, _measured(network))
        )
    means = [_mean([ratio(network, side, metric) for _, network in named]) for _, side, metric in _RATIOS]
    lines.append(_row("**geometric mean**", "", "", *(f"**{_number(mean)}**" for mean in means), ""))
    failures = [
        f"* {name}, {side}: {measured['failure']}"
        for name, network in named
        for side, measured in network["sides"].items()
        if measured["failure"]
    ]
    parts = ["# The zoo", *heading({**result, "cases": []}), "\n".join(lines)]
    return "\n\n".join([*parts, *(["Not measured:", "\n".join(failures)] if failures else [])]) + "\n"


def _measured(network: Json) -> str:
    """Returns the day on which a network was measured, and the machine where it is known."""
    day = network.get("date", "").partition(" ")[0]
    return ", ".join(filter(None, (day, network.get("machine", ""))))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _mean(ratios: list[float | None]) -> float | None:
    logarithms = [math.log(r) for r in ratios if r]
    return math.exp(statistics.fmean(logarithms)) if logarithms else None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
