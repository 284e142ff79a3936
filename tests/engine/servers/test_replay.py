"""Rows that are behind come to the same bits with whichever others, and in however many pieces, they are computed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from lockstep._engine.servers.compiled import Programs
from lockstep._engine.servers.layout import Variable
from lockstep._engine.servers.rules import rule_of
from lockstep._types import Array, Optimizer
from tests.support.exhaustive import slow_but

optimizers: Any = keras.optimizers
MOVING: dict[str, Callable[[], Optimizer]] = {
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "RMSprop": lambda: optimizers.RMSprop(0.001),
    "Adam": lambda: optimizers.Adam(0.001),
    # A product and a sum in one step, which a processor may round once or twice.
    "AdamW": lambda: optimizers.AdamW(0.001),
    "Ftrl": lambda: optimizers.Ftrl(0.01),
}
ROWS, STEPS = 300, 40


class Replayed:
    """Rows of a table, and what they come to.

    Args:
        optimizer: The optimizer.
        width: How many elements a row has.
    """

    def __init__(self, optimizer: Optimizer, width: int) -> None:
        rule = rule_of(optimizer, [Variable("table", (10_000, width), "float32", "rows")])
        (self.key,) = rule.programs
        self.programs = Programs(rule, 0)
        for step in range(STEPS):
            self.programs.rates[self.key].advance(step, rule.defaults)
        random = np.random.default_rng(width)
        count = 1 + len(rule.programs[self.key].slots)
        self.arrays = [np.abs(random.normal(size=(ROWS, width))).astype(np.float32) for _ in range(count)]
        self.steps = np.sort(random.integers(1, STEPS + 1, ROWS))

    def replay(self, own: Array, starts: Array, steps: Array, arrays: list[Array]) -> list[Array]:
        """Returns rows `own` of arrays after so many steps."""
        return self.programs.replay(self.key, starts, steps, [a[own] for a in arrays])


# Rows that go element by element, of an odd number and of a vector, and wider ones; the quick rules have all operations
# that the others have.
WIDTHS = (3, 16, 40)
QUICK = [("momentum", 3), ("AdamW", 16), ("Ftrl", 40)]
CASES = slow_but(itertools.product(MOVING, WIDTHS), *QUICK)


@pytest.mark.parametrize(("name", "width"), CASES)
def test_bits_do_not_depend_on_other_rows(name: str, width: int) -> None:
    rows = Replayed(MOVING[name](), width)
    everything = np.arange(ROWS)
    expected = rows.replay(everything, STEPS - rows.steps, rows.steps, rows.arrays)
    random = np.random.default_rng(0)
    for count in (1, 2, 65, 190, 299):
        own = np.sort(random.permutation(ROWS)[:count])
        results = rows.replay(own, (STEPS - rows.steps)[own], rows.steps[own], rows.arrays)
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, value[own])


@pytest.mark.parametrize(("name", "width"), CASES)
def test_bits_do_not_depend_on_pieces(name: str, width: int) -> None:
    rows = Replayed(MOVING[name](), width)
    everything, first = np.arange(ROWS), (rows.steps + 1) // 2
    expected = rows.replay(everything, STEPS - rows.steps, rows.steps, rows.arrays)
    half = rows.replay(everything, STEPS - rows.steps, first, rows.arrays)
    left = rows.steps - first
    own = np.flatnonzero(left)
    results = rows.replay(own, (STEPS - left)[own], left[own], half)
    for result, value, before in zip(results, expected, half, strict=True):
        np.testing.assert_array_equal(result, value[own])
        # One step was all that these had.
        np.testing.assert_array_equal(before[left == 0], value[left == 0])
