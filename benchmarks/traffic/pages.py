"""Tables of what communication.py found."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.report import heading

Json = Mapping[str, Any]
# How far weights may be from AUTO's; how much less accurate training may be than without compression, in points.
APART = 1e-6
BAR, LOCAL_BAR = 0.2, 0.3


def write(result: Json, directory: Path) -> None:
    """Writes `communication.json` and `communication.md`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "communication.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "communication.md").write_text(markdown(result))


def markdown(result: Json) -> str:
    """Returns the tables."""
    others = f"Others had up to {result['others']:.0%} of the machine while steps/s were measured."
    parts = ["# How gradients travel", *heading({**result, "cases": []})[:1], f"`{result['command']}`. {others}"]
    parts += [
        _choices(result["choices"]),
        *(_compressions(name, found) for name, found in result["compressions"].items()),
    ]
    return "\n\n".join(parts) + "\n"


def _choices(found: Json) -> str:
    lines = [
        "## Ways to add gradients up",
        "",
        "A small convolutional network, SGD, batches of 128 on four CPU devices of one process, the last of each epoch",
        "shorter. Collectives: in the compiled step. Bytes: what each replica sends in a step if these are as good as",
        "can be. Apart: the largest difference of a weight from AUTO's after two epochs. The network is smooth (tanh,",
        f"average pooling), because rounding decides a tie of max-pooling. Bar: {APART:.0e}.",
        "",
        "| choice | collectives | bytes a step | steps/s | apart | bar |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        cells = [
            name,
            _kinds(one["collectives"]),
            f"{one['bytes']:,.0f}",
            f"{one['steps/s']:.1f}",
            f"{one['apart']:.0e}",
            _reached(one["apart"] <= APART),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _reached(is_so: bool) -> str:
    return "reached" if is_so else "not reached"


def _kinds(collectives: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(collectives.items())) or "none"


def _compressions(name: str, found: Json) -> str:
    plain = found["by"]["none"]
    lines = [
        f"## {name.capitalize()}",
        "",
        f"{found['source']}. Two workers of this machine over TCP, {found['epochs']} epochs, Adam whose rate falls to",
        "zero, batches of 128. Bytes: what a worker sends in a step, counted in the program and measured on the",
        "loopback interface; after the steps in which gradients travel whole. Points: a seed's accuracy less the same",
        "seed's without compression; mean, and lowest to highest. Bars: the mean is at most",
        f"{BAR} points lower, {LOCAL_BAR} with local steps.",
        "",
        "| compression | counted | measured | x less | steps/s | seeds | accuracy | points | bar |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_cells(compression, one, plain))} |" for compression, one in found["by"].items()]
    return "\n".join(lines)


def _cells(name: str, one: Json, plain: Json) -> list[str]:
    points = [100 * (a - b) for a, b in zip(one["accuracies"], plain["accuracies"], strict=True)]
    bar = LOCAL_BAR if "Local" in name else BAR
    return [
        name,
        *_sent(one, plain),
        str(len(one["accuracies"])),
        _spread([100 * a for a in one["accuracies"]], ".2f", " %"),
        "" if name == "none" else _spread(points, "+.2f"),
        "" if name == "none" else _reached(statistics.mean(points) >= -bar),
    ]


def _sent(one: Json, plain: Json) -> list[str]:
    less = plain["bytes"] / one["bytes"]
    return [f"{one['bytes']:,.0f}", f"{one['measured']:,.0f}", f"{less:.1f}", f"{one['steps/s']:.1f}"]


def _spread(values: list[float], form: str, unit: str = "") -> str:
    return f"{statistics.mean(values):{form}}{unit} ({min(values):{form}} to {max(values):{form}})"
