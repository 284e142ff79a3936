"""Measures cases: sides take turns, each in a process of its own, round after round."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.case import Case, Side
from benchmarks.harness.environments import Pythons, variables
from benchmarks.harness.processes import Failed, Result, measure
from benchmarks.harness.statistics import Verdict, judge

# The part of the machine that others may have during a measurement; a quiet machine's own services take less than 2 %.
TOLERATED = 0.1


@dataclass
class Measured:
    """A side of a case.

    Attributes:
        side: The side.
        rounds: What it measured in each round.
        others: The part of the machine that other programs had meanwhile, in each round.
        failure: Why it was not measured, or stopped to be.
    """

    side: Side
    rounds: list[Mapping[str, float]] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Outcome:
    """A case that has been measured."""

    case: Case
    sides: Sequence[Measured]

    def verdicts(self) -> list[Verdict]:
        """Judges each bar; a side that failed in a later round counts with its earlier ones."""
        found = {m.side.name: m.rounds for m in self.sides}
        return [judge(bar, found) for bar in self.case.bars]


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        rounds: How often each side runs.
        quick: Less of everything.
        pythons: Interpreters.
        prefix: Words before each measured command, such as `taskset -c 0,1`.
        options: What all sides are told.
        tries: How often to measure at most where other programs disturb it.
        wait: Seconds added to each process' limit, for a prefix that waits for its turn.
    """

    rounds: int
    quick: bool
    pythons: Pythons
    prefix: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    tries: int = 3
    wait: float = 0.0


def run(case: Case, settings: Settings) -> Outcome:
    """Measures a case. A side that fails says why and is left out; the others go on."""
    sides = [Measured(side) for side in case.sides if side.quick or not settings.quick]
    for measured in sides:
        measured.failure = settings.pythons.missing(measured.side.environment) or ""
    for number in range(settings.rounds):
        # There and back: what the machine does to the first of a round, it does to the last of the next.
        for measured in sides if number % 2 == 0 else reversed(sides):
            if not measured.failure:
                _once(case, measured, settings)
                _report(case, measured, number)
    return Outcome(case, sides)


def _once(case: Case, measured: Measured, settings: Settings) -> None:
    try:
        result = _undisturbed(case, measured.side, settings)
    except Failed as error:
        measured.failure = str(error)
    else:
        measured.rounds.append(result.measured)
        measured.others.append(result.others)


def _undisturbed(case: Case, side: Side, settings: Settings) -> Result:
    """Measures, and again if others used the machine meanwhile; returns what was disturbed least."""
    options = {**settings.options, "limit": case.limit, **side.options}
    python, own = settings.pythons.of(side.environment), variables(side.environment)
    limit = case.limit + settings.wait
    results: list[Result] = []
    while len(results) < settings.tries and all(r.others > TOLERATED for r in results):
        results.append(measure(settings.prefix, python, case.module, side.runs, options, own, limit))
    return min(results, key=lambda r: r.others)


def _report(case: Case, measured: Measured, number: int) -> None:
    said = measured.failure or ", ".join(f"{name} {value:.4g}" for name, value in measured.rounds[-1].items())
    busy = f" (others had {measured.others[-1]:.0%})" if measured.others and measured.others[-1] > TOLERATED else ""
    line = f"row {case.row} {case.name}, round {number + 1}, {measured.side.name}: {said}{busy}"
    print(line, file=sys.stderr, flush=True)
