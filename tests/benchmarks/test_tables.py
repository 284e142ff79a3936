from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.grids import pages
from benchmarks.harness import plots, report
from benchmarks.harness.case import Bar, Case, Side
from benchmarks.harness.command import cases
from benchmarks.harness.environments import ROOT, Pythons
from benchmarks.harness.rounds import Measured, Outcome
from benchmarks.rows import gpu

OURS, PEER = Side("ours", "run", role="ours"), Side("peer", "run")
BARS = [
    Bar("x the peer", ("ours", "steps/s"), [("peer", "steps/s")], 1.5, 2.0),
    Bar("s lost", ("ours", "s"), [], 0.05, None, "value", at_most=True),
    Bar("x nobody", ("ours", "steps/s"), [("nobody", "steps/s")], 1.0),
]
CASE = Case(
    1, "work", "Some work", "benchmarks.rows.mlp", {"steps/s": "steps in a second", "s": "seconds"}, [OURS, PEER], BARS
)


def _result(peer: Measured) -> dict[str, Any]:
    ours = Measured(OURS, [{"steps/s": 1600.0, "s": 0.2}, {"steps/s": 2000.0, "s": 0.3}], [0.01, 0.02])
    return {
        "kind": "quick",
        "date": "2026-01-01 00:00 UTC",
        "machine": {"processor": "a processor", "cores": "2", "system": "a system", "memory": "8 GiB"},
        "rounds": 2,
        "versions": {"lockstep": {"python": "3.11.7"}},
        "command": "python benchmarks/run.py --quick",
        "cases": [report.as_json(Outcome(CASE, [ours, peer]))],
    }


def test_tables_show_medians_bars_and_what_was_missed() -> None:
    text = report.markdown(_result(Measured(PEER, [{"steps/s": 1000.0}, {"steps/s": 1000.0}], [0.0, 0.5])))
    assert "| 1 | work | x the peer | **1.8** (1.6 to 2) | ≥ 1.5 | ≥ 2 | yes, aim not |" in text
    assert "| 1 | work | s lost | **0.25** (0.2 to 0.3) | ≤ 0.05 |  | no |" in text
    assert "| 1 | work | x nobody | not measured | ≥ 1 |  | ? |" in text
    assert "* Row 1, work, x the peer: 1.8, the aim is 2" in text
    assert "* Row 1, work, s lost: 0.25, the bar is 0.05" in text
    assert "| **ours** | 1,800 (1,600 to 2,000) | 0.25 (0.2 to 0.3) |" in text
    assert "| peer | 1,000 (1,000 to 1,000) | – |" in text
    assert "up to 50%, during 1 of 4 measurements" in text


def test_a_side_that_failed_is_named_with_its_reason() -> None:
    text = report.markdown(_result(Measured(PEER, failure="ended with 1: no such thing")))
    assert "* Row 1, work: peer was not measured in every round: ended with 1: no such thing" in text
    assert "x the peer | not measured" in text


def test_rows_of_an_earlier_run_are_told_apart() -> None:
    result = _result(Measured(PEER, [{"steps/s": 1000.0}], [0.0]))
    (case,) = result["cases"]
    dates = {1: "2025-12-31 23:59 UTC", 2: "2026-01-01 00:10 UTC", 3: "2025-12-31 22:00 UTC"}
    result["cases"] = [{**case, "row": row, "date": date, "rounds": 2} for row, date in dates.items()]
    assert "Measured earlier, as the tables of these rows say: 1, 3." in report.markdown(result)
    result["cases"] = [case]
    assert "Measured earlier" not in report.markdown(result)


def test_results_are_written_and_read_again(tmp_path: Path) -> None:
    result = _result(Measured(PEER, [{"steps/s": 1000.0}], [0.0]))
    report.write(result, tmp_path, "quick")
    again = json.loads((tmp_path / "quick.json").read_text())
    assert report.markdown(again) == (tmp_path / "quick.md").read_text()


def test_publishing_replaces_what_is_between_the_marks(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.START}\nold\n{report.END}\nafter\n")
    result = _result(Measured(PEER, [{"steps/s": 1000.0}], [0.0]))
    for _ in range(2):
        report.publish(result, readme)
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("What was not reached") == 1


@pytest.mark.slow
def test_the_plot_is_written(tmp_path: Path) -> None:
    python = ROOT / Pythons().plot
    if not python.exists():
        pytest.skip(f"there is no {python}: make bench builds it")
    report.write(_result(Measured(PEER, [{"steps/s": 1000.0}], [0.0])), tmp_path, "quick")
    plots.draw("rows", tmp_path / "quick.json", str(python))
    assert "Row 1, work" in (tmp_path / "quick.svg").read_text()


@pytest.mark.parametrize("case", [*cases(set()), *gpu.cases("cuda", smoke=False)], ids=lambda case: case.name)
def test_cases_name_functions_sides_and_metrics_that_exist(case: Case) -> None:
    module = importlib.import_module(case.module)
    names = [side.name for side in case.sides]
    assert len(set(names)) == len(names)
    assert case.sides[0].role == "ours"
    for side in case.sides:
        assert callable(getattr(module, side.runs))
    for bar in case.bars:
        for side, metric in [bar.ours, *bar.theirs]:
            assert side in names
            assert metric in case.metrics


def test_every_row_of_the_speed_table_has_a_bar() -> None:
    assert {case.row for case in cases(set()) if case.bars} >= set(range(1, 8))


def test_the_page_of_lowerings_knows_each_kind_and_what_is_slower(tmp_path: Path) -> None:
    name = "conv 4x28x28x64 3x3 -> 64 same 64 groups float32 of input"
    pages.keep(tmp_path, name, {name: (1.0, 0.5, 0.5), f"{name}, in a loop": (1.0, 1.2, 1.2)})
    other = "conv 4x28x28x64 3x3 -> 64 same 4 groups float32 of kernel"
    pages.keep(tmp_path, other, {other: (1.0, 0.9, 0.9)})
    pages.keep(tmp_path, name, {name: (1.0, 0.25, 0.25)})
    text = (tmp_path / "lowerings.md").read_text()
    assert "| depthwise convolution, gradient of the input | 1 | 0.25 | 0.250 | 0.25 |" in text
    assert "| other convolutions, gradient of the kernel | 1 |" in text
    assert "Of 2 cases none seem more than 10 % slower." in text
    pages.keep(tmp_path, name, {f"{name}, in a loop": (1.0, 1.2, 1.2)})
    assert f"| 1.000 | 1.200 | 1.20 | {name}, in a loop |" in (tmp_path / "lowerings.md").read_text()


def test_every_case_of_the_grids_of_lowerings_has_a_kind() -> None:
    grids = importlib.import_module("benchmarks.lowerings").GRIDS
    cases = {case.name: [1.0, 0.5, 0.5] for grid in grids for case in grid()}
    about = {"cores": 2, "processor": "a processor"}
    page = pages.markdown({"date": "2026", "machine": about, "versions": {"lockstep": {"jax": "1"}}, "cases": cases})
    assert f"Of {len(cases)} cases none seem more than 10 % slower." in page
    assert "| sorts, gradient | 11 | 0.50 |" in page
