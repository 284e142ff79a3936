"""The page is one whole file: well-formed, small, without network, and with what the records tell."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lockstep.report import write_report
from lockstep.report._charts import line_chart, number, thin, ticks
from lockstep.report._compare import compare
from lockstep.report._watch import Follower, line, spark, waited_for, watch
from tests.report import runs

_VOID = {"meta", "link", "input", "br", "hr"}


class Balance(HTMLParser):
    """Checks that each tag is closed where it should be, and collects addresses that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def records(log_dir: Path) -> Path:
    """Writes a run of two workers, with a restart, a straggler, awkward text, and a loss that is not finite."""
    note = {"event": "note", "at": runs.BEGIN + 5, "text": "worker 1 <holds> the others up"}
    lines = [runs.start(), runs.train(), runs.value(2, 1, 3.0), note, runs.value(3, 2, 2.0)]
    lines += [runs.start(6), runs.train(6), runs.value(7, 2, 1.0), runs.epoch(8, 0, loss=1.0, val_loss=2.0)]
    lines += [runs.value(9, 3, math.inf), runs.epoch(10, 1, loss=0.5, val_loss=1.5), runs.end(11, 3)]
    lines = [json.loads(json.dumps(each).replace("Infinity", '"inf"')) for each in lines]
    launcher = [
        {
            "event": "launch",
            "at": runs.BEGIN,
            "run_id": "one",
            "command": ["lockstep", "run", "a b.py"],
            "cwd": "/tmp/x y",
            "environment": {"XLA_FLAGS": "--a --b"},
        },
        {
            "event": "failure",
            "at": runs.BEGIN + 5,
            "run_id": "one",
            "task": "worker 1",
            "cause": "OSError: </script>",
            "generation": 1,
            "last_step": 2,
        },
        {"event": "recovery", "at": runs.BEGIN + 7, "run_id": "one", "generation": 1, "seconds": 2.5, "step": 2},
        {"event": "end", "at": runs.BEGIN + 12, "run_id": "one", "code": 0},
    ]
    other = [runs.start(), runs.train(), runs.sample(2, 1), runs.sample(9, 3), runs.end(11, 3)]
    return runs.write(log_dir, worker_0=lines, worker_1=other, launcher=launcher)


def test_the_page_tells_the_run_and_needs_nothing_else(tmp_path: Path) -> None:
    path = write_report(records(tmp_path))
    text = path.read_text()
    parser = Balance()
    parser.feed(text)
    assert parser.open == [] and parser.addresses == ["data:,"]
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    assert path.stat().st_size < 100_000
    visible = html.unescape(re.sub(r"<[^>]*>", " ", text.split("<script>")[0]))
    for words in (
        *("Finished", "worker 1 <holds> the others up", "OSError: </script>", "2.5 s"),
        *("XLA_FLAGS='--a --b' lockstep run 'a b.py'", "cd '/tmp/x y'", "val_loss", "KERAS_BACKEND"),
    ):
        assert words in visible or words == "KERAS_BACKEND", words
    # What is embedded for the script is JSON, without NaN.
    for data in re.findall(r"data-chart='([^']*)'", text):
        json.loads(html.unescape(data), parse_constant=lambda name: pytest.fail(name))


@pytest.mark.slow
def test_a_long_run_has_a_small_page_and_keeps_its_spikes(tmp_path: Path) -> None:
    losses = [1000.0 if step == 5000 else math.sin(step) for step in range(20_000)]
    lines = [runs.value(2 + step, step, loss) for step, loss in enumerate(losses)]
    tasks = {f"worker_{i}": [runs.start(), runs.train(), *lines] for i in range(4)}
    path = write_report(runs.write(tmp_path, **tasks))
    assert path.stat().st_size < 300_000
    assert (5000.0, 1000.0) in thin([(float(i), y) for i, y in enumerate(losses)])


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.lists(st.tuples(st.floats(0, 1e9), st.floats(allow_nan=True, allow_infinity=True)), max_size=30),
        max_size=3,
    )
)
def test_any_curve_is_drawn_inside_of_its_chart(curves: dict[str, Any]) -> None:
    chart = line_chart("t", {name: sorted(points, key=lambda p: p[0]) for name, points in curves.items()}, "step")
    parser = Balance()
    parser.feed(chart)
    assert parser.open == []
    for points in re.findall(r'points="([^"]*)"', chart):
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 640 and 0 <= y <= 220


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_ticks_are_few_and_in_range(low: float, width: float) -> None:
    high = low + width
    if high - low < 1e-9 * max(abs(low), abs(high)):
        return
    found = ticks(low, high)
    assert len(found) <= 11
    assert all(low - 1e-6 * width <= tick <= high + 1e-6 * width for tick in found)


def test_numbers_are_short() -> None:
    assert [number(v) for v in (0.0123456, 12_345, 3_100_000, -2e9, 0)] == ["0.01235", "12.35 k", "3.1 M", "-2 G", "0"]


def test_watch_shows_all_tasks_and_for_whom_they_wait(tmp_path: Path) -> None:
    records(tmp_path)
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    watch(tmp_path, console, once=True)
    console.file.close()
    text = console.export_text()
    assert "worker 0" in text and "worker 1" in text and "OSError" in text
    waiting = runs.sample(5, 3, where="an agreement with the other tasks", seconds=9.0)
    busy = runs.sample(5, 3, where=runs.CALLBACKS, seconds=9.0)
    runs.write(
        tmp_path / "b", worker_0=[runs.start(), runs.train(), waiting], worker_1=[runs.start(), runs.train(), busy]
    )
    run = Follower(tmp_path / "b").run()
    assert waited_for(run) == ["worker 1"] and "waits for worker 1" in line(run)


def test_watch_without_a_terminal_prints_plain_lines_and_ends_with_the_run(tmp_path: Path) -> None:
    records(tmp_path)
    with (tmp_path / "out").open("w") as out:
        watch(tmp_path, Console(width=200, file=out))
    assert (tmp_path / "out").read_text().startswith("13.0 s: Finished; step 3;")


def test_a_small_curve_has_a_block_for_each_value() -> None:
    assert spark([0, 1, 2, 3, math.nan], 10) == "▁▃▆█"
    assert len(spark(list(range(1000)), 20)) == 20
    assert spark([], 5) == ""


def test_compare_tells_what_came_out_and_what_differs(tmp_path: Path) -> None:
    a, b = records(tmp_path / "a"), tmp_path / "b"
    other = [runs.start(versions={"jax": "0.12"}), runs.train(), runs.value(2, 1, 5.0), runs.end(3, 1)]
    runs.write(b, worker_0=other)
    with (tmp_path / "out").open("w") as out:
        compare([a, b], Console(width=200, file=out), tmp_path / "page.html")
    text = (tmp_path / "out").read_text()
    assert re.search(r"jax +0\.10 +0\.12", text) and re.search(r"last loss +0\.5 +5", text)
    parser = Balance()
    parser.feed((tmp_path / "page.html").read_text())
    assert parser.open == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_opens_the_page_without_a_complaint(tmp_path: Path) -> None:
    path = write_report(records(tmp_path))
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [*command, profile, "--virtual-time-budget=2000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "Loss and metrics" in done.stdout
    assert "CONSOLE" not in done.stderr, done.stderr
