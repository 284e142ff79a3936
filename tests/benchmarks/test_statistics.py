from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.case import Bar
from benchmarks.harness.statistics import judge, spread

_POSITIVE = st.floats(1e-3, 1e6)


def _rates(*values: float) -> list[dict[str, float]]:
    return [{"rate": v} for v in values]


def _bar(**more: object) -> Bar:
    return Bar("x the peer", ("ours", "rate"), [("peer", "rate")], **{"must": 2.0, "aim": 3.0, **more})  # type: ignore[arg-type]


def test_a_ratio_is_of_the_medians_and_its_range_of_the_rounds() -> None:
    verdict = judge(_bar(), {"ours": _rates(10, 30, 20), "peer": _rates(10, 5, 10)})
    assert (verdict.value, verdict.low, verdict.high) == (2.0, 1.0, 6.0)
    assert verdict.reached is True
    assert verdict.aim_reached is False


def test_the_best_peer_counts() -> None:
    bar = Bar("x the fastest", ("ours", "rate"), [("slow", "rate"), ("fast", "rate")], 1.0)
    found = {"ours": _rates(10), "slow": _rates(1), "fast": _rates(20)}
    assert judge(bar, found).value == 0.5
    less = Bar("x the seconds", ("ours", "rate"), [("slow", "rate"), ("fast", "rate")], 1.0, at_most=True)
    assert judge(less, found).value == 10


@pytest.mark.parametrize(
    ("how", "value", "reached"), [("difference", 5.0, True), ("loss", -0.5, True), ("value", 15.0, True)]
)
def test_other_figures(how: str, value: float, reached: bool) -> None:
    verdict = judge(_bar(how=how, must=16.0, aim=None, at_most=True), {"ours": _rates(15), "peer": _rates(10)})
    assert verdict.value == value
    assert verdict.reached is verdict.aim_reached is reached


def test_what_was_not_measured_is_not_judged() -> None:
    for found in (
        {},
        {"ours": _rates(1)},
        {"ours": _rates(1), "peer": []},
        {"ours": _rates(1), "peer": [{"other": 1.0}]},
    ):
        verdict = judge(_bar(), found)
        assert verdict.value is verdict.reached is verdict.aim_reached is None


def test_a_figure_without_a_bar_is_not_judged_but_for_its_aim() -> None:
    found = {"ours": _rates(4), "peer": _rates(1)}
    assert judge(_bar(must=None), found).reached is None
    assert judge(_bar(must=None), found).aim_reached is True
    assert judge(_bar(must=None, aim=None), found).aim_reached is None


@given(st.lists(_POSITIVE, min_size=1, max_size=9))
def test_a_median_lies_in_its_range(values: list[float]) -> None:
    found = spread(values)
    assert found.low <= found.median <= found.high
    assert {found.low, found.high} <= set(values)


@given(st.lists(st.tuples(_POSITIVE, _POSITIVE), min_size=1, max_size=7), st.floats(0.1, 10))
def test_a_ratio_does_not_depend_on_how_fast_the_machine_is(pairs: list[tuple[float, float]], factor: float) -> None:
    def figure(scale: float) -> float:
        found = {"ours": _rates(*(a * scale for a, _ in pairs)), "peer": _rates(*(b * scale for _, b in pairs))}
        value = judge(_bar(), found).value
        assert value is not None
        return value

    assert math.isclose(figure(1.0), figure(factor), rel_tol=1e-9)
