"""Tables of what communication.py found."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.report import heading

Json = Mapping[str, Any]
# How much less accurate than without compression, in points.
BAR, LOCAL_BAR = 0.2, 0.3
_TITLES = {"digits": "Digits", "pictures": "Pictures", "photographs": "Photographs"}


def write(result: Json, directory: Path) -> None:
    """Writes `communication.json` and `communication.md`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "communication.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "communication.md").write_text(markdown(result))


def markdown(result: Json) -> str:
    """Returns the tables."""
    parts = ["# How gradients travel", *heading({**result, "cases": []})[:1], f"`{result['command']}`"]
    parts += [
        _choices(result["choices"]),
        *(_compressions(name, found) for name, found in result["compressions"].items()),
    ]
    return "\n\n".join(parts) + "\n"


def _choices(found: Json) -> str:
    lines = [
        "## Ways to add gradients up",
        "",
        "A small convolutional network, SGD, batches of 128 on four CPU devices of one process. Collectives: in the",
        "compiled step. Bytes: what each replica sends in a step if these are as good as can be. Apart: the largest",
        "difference of a weight from AUTO's after two epochs.",
        "",
        "| choice | collectives | bytes a step | steps/s | apart |",
        "|---|---|---|---|---|",
    ]
    for name, one in found.items():
        cells = [
            name,
            _kinds(one["collectives"]),
            f"{one['bytes']:,.0f}",
            f"{one['steps/s']:.1f}",
            f"{one['apart']:.0e}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _kinds(collectives: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(collectives.items())) or "none"


def _compressions(name: str, found: Json) -> str:
    plain = found["by"].get("none", {})
    lines = [
        f"## {_TITLES.get(name, name)}",
        "",
        f"{found['source']}. Two workers of this machine over TCP, {found['epochs']} epochs, Adam, batches of 128,",
        f"{found['seeds']} seeds. Bytes: what a worker sends in a step, counted in the program and measured on the",
        f"loopback interface; after the steps in which gradients travel whole. Bars: at most {BAR} points less than",
        f"without, {LOCAL_BAR} with local steps.",
        "",
        "| compression | counted | measured | x less | steps/s | accuracy | points | bar |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for compression, one in found["by"].items():
        points = [100 * (a - b) for a, b in zip(one["accuracies"], plain.get("accuracies", []), strict=False)]
        lines.append(f"| {' | '.join(_cells(compression, one, plain, points))} |")
    return "\n".join(lines)


def _cells(name: str, one: Json, plain: Json, points: list[float]) -> list[str]:
    accuracy = statistics.mean(one["accuracies"])
    lost = statistics.mean(points) if points else 0.0
    bar = LOCAL_BAR if "Local" in name else BAR
    return [
        name,
        f"{one['bytes']:,.0f}",
        f"{one['measured']:,.0f}",
        f"{plain.get('bytes', 0) / one['bytes']:.1f}",
        f"{one['steps/s']:.1f}",
        f"{100 * accuracy:.2f} % ({100 * min(one['accuracies']):.2f} to {100 * max(one['accuracies']):.2f})",
        f"{lost:+.2f}",
        "" if name == "none" else ("reached" if lost >= -bar else "not reached"),
    ]
