"""The table of `third_party.md`, and the failures by their causes, from the results of `third_party`."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs.third_party_programs import PROGRAMS, Entry

_FIRST_LOSS, _NUMBERS = 1e-4, 2e-3


@dataclass
class Comparison:
    """One program on both sides.

    Attributes:
        entry: The program.
        cells: How many cells ran on TensorFlow; 1 for a script.
        failures: Number, error and place of each of those cells that failed on lockstep.
        first_losses: The first loss on TensorFlow and on lockstep; empty if the program has none.
        equal: How many of the numbers that both printed or trained to are equal to 0.2 %.
        numbers: How many numbers both have at the same place.
        drawn: Whether it drew random numbers that cannot be the same on both sides.
    """

    entry: Entry
    cells: int
    failures: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    first_losses: tuple[float, ...] = ()
    equal: int = 0
    numbers: int = 0
    drawn: bool = False

    @property
    def whole(self) -> bool:
        """Whether every cell that ran on TensorFlow ran."""
        return self.cells > 0 and not self.failures

    @property
    def difference(self) -> float | None:
        """The relative difference of the first losses."""
        if len(self.first_losses) < 2 or not all(map(math.isfinite, self.first_losses)):
            return None
        first, second = self.first_losses
        return abs(first - second) / max(abs(first), 1e-6)

    @property
    def agrees(self) -> bool | None:
        """Whether the first losses agree, or without them nearly all numbers; `None` if there are none."""
        if self.difference is not None:
            return self.difference <= _FIRST_LOSS
        if self.drawn:
            return None
        return self.equal >= 0.9 * self.numbers if self.numbers else None


def compare(results: Path) -> list[Comparison]:
    """Returns the programs that were run on both sides, by their last results."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for line in results.read_text().splitlines():
        row = json.loads(line)
        last[row["name"], row["side"]] = row
    pairs = ((entry, last.get((entry.name, "tensorflow")), last.get((entry.name, "lockstep"))) for entry in PROGRAMS)
    return [_compare(entry, one, other) for entry, one, other in pairs if one is not None and other is not None]


def _compare(entry: Entry, one: dict[str, Any], other: dict[str, Any]) -> Comparison:
    gone = {failure[0] for failure in one["failures"]}
    failures = [tuple(failure) for failure in other["failures"] if failure[0] not in gone]
    comparison = Comparison(entry, one["ran"], failures, drawn=bool(one.get("drawn") or other.get("drawn")))
    losses = [_first_loss(report) for report in (one, other)]
    if all(loss is not None for loss in losses):
        comparison.first_losses = tuple(losses)
    pairs: list[tuple[float, float]] = []
    for cell, values in one.get("printed", {}).items():
        others = other.get("printed", {}).get(cell, [])
        if len(values) == len(others):
            pairs += zip(values, others, strict=True)
    for (name, value), (other_name, other_value) in zip(one.get("results", []), other.get("results", []), strict=False):
        if name == other_name:
            pairs.append((value, other_value))
    comparison.numbers = len(pairs)
    comparison.equal = sum(math.isclose(a, b, rel_tol=_NUMBERS, abs_tol=1e-3) for a, b in pairs)
    return comparison


def _first_loss(report: dict[str, Any]) -> float | None:
    trained = [value for name, value in report.get("results", []) if name in ("first loss", "evaluate loss")]
    return next(iter([*trained, *report.get("losses", [])]), None)


def table(results: Path, directory: Path) -> str:
    """Returns the page: the figures, the repositories' commits, and a row for each program."""
    compared = compare(results)
    # What TensorFlow itself does not run there tells nothing.
    rows = [one for one in compared if one.cells]
    whole = [one for one in rows if one.whole]
    told = [one for one in whole if one.agrees is not None]
    lines = [
        "# Third parties' programs on TensorFlow 2.15 and on lockstep",
        "",
        "Public programs, with only their import lines changed as `lockstep scan --write` does; their code is not",
        "kept here. Measured with `python -m tests.programs.third_party DIRECTORY --tensorflow PYTHON`, which says",
        "what is done to both sides alike: short training, stand-ins for downloads, initial weights by their shapes,",
        "no shuffling, no dropout. A cell that fails on TensorFlow there is not counted. The first loss is that of the",
        "first step, or of the first evaluation where the program evaluates before it trains. Programs without a loss",
        "that draw random numbers in compiled code, or sample, are not compared.",
        "",
        *_headline(rows, whole, told, len(PROGRAMS) - len(compared)),
        "",
        f"Repositories and commits: {', '.join(_commits(directory, rows))}.",
        "",
        "| program | cells | whole | first loss on TensorFlow | on lockstep | equal numbers | first failure |",
        "|---|--:|---|--:|--:|--:|---|",
    ]
    for one in rows:
        name = f"{one.entry.repository.replace('+', '/')}: `{one.entry.path}`"
        losses = [f"{loss:.6g}" for loss in one.first_losses] or ["", ""]
        failure = ""
        if one.failures:
            number, error, _ = one.failures[0]
            failure = (f"cell {number}: " if one.cells > 1 else "") + _short(error, 110)
        equal = f"{one.equal}/{one.numbers}" if one.numbers else ""
        yes = "yes" if one.whole else f"{one.cells - len(one.failures)}/{one.cells}"
        lines.append(f"| {name} | {one.cells} | {yes} | {losses[0]} | {losses[1]} | {equal} | {failure} |")
    return "\n".join(lines) + "\n"


def _headline(rows: list[Comparison], whole: list[Comparison], told: list[Comparison], left: int) -> list[str]:
    agreeing = sum(bool(one.agrees) for one in told)
    lines = [
        f"**Of the {len(PROGRAMS)} programs on the list, {len(rows)} run on TensorFlow there, and {len(whole)} of "
        f"these run whole on lockstep ({len(whole) / max(len(rows), 1):.0%}).**"
    ]
    lines += [f"Of those, {len(told)} print or return numbers, and {agreeing} agree: their first losses to 1e-4, or,"]
    lines += ["where they have none, 9 of 10 numbers to 0.2 %."]
    if left:
        lines += ["", "**Not the whole list: no share of programs that run can be read from this table.**"]
    return lines


def _short(error: str, most: int) -> str:
    text = re.sub(r"\s+", " ", error).replace("|", "/").replace("`", "'")
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]}..."


def _commits(directory: Path, rows: list[Comparison]) -> list[str]:
    named: list[str] = []
    for repository in sorted({one.entry.repository for one in rows}):
        file = directory / repository / ".commit"
        git = ["git", "-C", str(directory / repository), "rev-parse", "HEAD"]
        commit = file.read_text() if file.exists() else subprocess.run(git, capture_output=True, text=True).stdout
        named.append(f"{repository.replace('+', '/')} `{commit.strip()[:12]}`")
    return named


def causes(results: Path) -> str:
    """Returns the failures by their errors, those first that stop most programs."""
    groups: dict[str, list[str]] = defaultdict(list)
    for one in compare(results):
        for place, (number, error, where) in enumerate(one.failures):
            if place and error.startswith("NameError"):
                continue
            key = re.sub(r"0x\w+|\d+", "#", _short(error, 160))
            groups[key].append(f"{one.entry.name}, cell {number}: {where}\n    {_short(error, 420)}")
    ordered = sorted(groups.values(), key=lambda places: -len({place.split(",")[0] for place in places}))
    lines: list[str] = []
    for places in ordered:
        programs = {place.split(", cell")[0] for place in places}
        lines += [f"\n## {len(programs)} programs"]
        lines += [f"* {place}" for place in places[:6]]
    return "\n".join(lines) + "\n"
