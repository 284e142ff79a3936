"""Medians over rounds, and bars judged by them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness.case import Bar, Quantity

Rounds = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Spread:
    """A median and the extremes around it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A bar and what was measured.

    Attributes:
        bar: The bar.
        value: The figure, of medians over the rounds; `None` if a side was not measured.
        low: The least figure of a single round.
        high: The largest.
    """

    bar: Bar
    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the bar was reached; `None` if that was not measured, or there is none."""
        return _within(self.value, self.bar.must, self.bar.at_most)

    @property
    def aim_reached(self) -> bool | None:
        """The same of the aim."""
        return _within(self.value, self.bar.must if self.bar.aim is None else self.bar.aim, self.bar.at_most)


def spread(values: Sequence[float]) -> Spread:
    """Returns the median of `values` and their extremes; there must be one at least."""
    return Spread(statistics.median(values), min(values), max(values))


def judge(bar: Bar, found: Mapping[str, Rounds]) -> Verdict:
    """Compares the sides' rounds.

    The figure is that of the medians; the range is over rounds, where both sides ran one after the other.
    """
    ours = _values(bar.ours, found)
    theirs = [_values(quantity, found) for quantity in bar.theirs]
    if not ours or not all(theirs):
        return Verdict(bar)
    single = [_figure(bar, *values) for values in zip(ours, *theirs, strict=False)]
    value = _figure(bar, *(statistics.median(values) for values in (ours, *theirs)))
    return Verdict(bar, value, min(single), max(single))


def _values(quantity: Quantity, found: Mapping[str, Rounds]) -> list[float]:
    side, metric = quantity
    return [r[metric] for r in found.get(side, ()) if metric in r]


def _figure(bar: Bar, ours: float, *theirs: float) -> float:
    if bar.how == "value":
        return ours
    best = min(theirs) if bar.at_most and bar.how != "loss" else max(theirs)
    if bar.how == "difference":
        return ours - best
    return 1 - ours / best if bar.how == "loss" else ours / best


def _within(value: float | None, limit: float | None, at_most: bool) -> bool | None:
    if value is None or limit is None:
        return None
    return value <= limit if at_most else value >= limit
