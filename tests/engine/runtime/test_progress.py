"""Where a task is, who holds the others up, and who is stuck."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep._engine.runtime import progress
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.progress import Progress
from lockstep._engine.runtime.stragglers import Stragglers, behind, stacks, stall
from lockstep._launch.task_files import ProgressRecord, read_progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until a test sets it: a busy machine adds nothing to a wait."""
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now, time=time.time)
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_time_is_spent_where_a_task_decides_about_it(clock: SimpleNamespace) -> None:
    found = Progress()
    for place in (progress.READING, progress.DEVICES, progress.STEP, progress.AGREEING):
        with found.being(place):
            clock.now += 2
        assert found.where == progress.ELSEWHERE
    spent = found.account()["spent"]
    assert spent[progress.READING] == 2
    assert sum(spent.values()) == 2
    assert progress.DEVICES not in spent and progress.STEP not in spent


def test_a_wait_is_as_long_as_it_has_one_reason(clock: SimpleNamespace) -> None:
    found = Progress()
    found.at(progress.READING)
    clock.now += 2
    found.still_at(progress.READING)
    assert found.seconds() == 2
    found.still_at(progress.AWAITING)
    assert found.seconds() == 0
    assert found.account()["spent"][progress.READING] == 2
    assert found.describe().startswith("a wait for the input of the other tasks for 0.")


def test_steps_are_counted_from_where_they_are_known() -> None:
    found = Progress()
    found.dispatched(3)
    assert (found.dispatches, found.step) == (1, None)
    found.begin(100)
    found.dispatched(3)
    found.begin(None)
    assert (found.dispatches, found.step) == (2, 103)


def test_the_launcher_reads_what_a_task_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("LOCKSTEP_PROGRESS_FILE", str(path))
    monkeypatch.setattr(progress, "_marks", {})
    found = Progress()
    found.begin(10)
    found.dispatched(2)
    began = time.time()
    progress.mark("stepped")
    progress.mark("stepped")
    progress.write_progress(found, at_once=True)
    record = read_progress(path)
    assert record is not None and (record.dispatches, record.step) == (1, 12)
    assert abs((record.time("stepped") or 0) - began) < 1 and record.time("joined") is None
    found.dispatched(2)
    progress.write_progress(found)
    assert json.loads(path.read_text())["step"] == 12, "not more often than once a second"
    assert [p.name for p in tmp_path.iterdir()] == ["progress.json"]


@pytest.mark.parametrize("text", ["", "[", "[]", "null", "{}", '{"dispatches": "x", "marks": {}}', '{"dispatches": 1}'])
def test_a_file_of_something_else_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "progress.json"
    path.write_text(text)
    assert read_progress(path) is None
    assert read_progress(tmp_path / "absent") is None


def test_nobody_wants_to_know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_PROGRESS_FILE", raising=False)
    progress.write_progress(Progress(), at_once=True)
    monkeypatch.setenv("LOCKSTEP_PROGRESS_FILE", str(tmp_path / "absent" / "p.json"))
    progress.write_progress(Progress(), at_once=True)
    assert list(tmp_path.iterdir()) == []
    assert ProgressRecord().time("joined") is None


class Clock:
    """Stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def accounts(*spent: dict[str, float]) -> dict[int, dict[str, Any]]:
    return {i: {"spent": s} for i, s in enumerate(spent)}


def test_a_straggler_is_named_at_most_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watched = Stragglers(("worker 0", "worker 1", "worker 2"), clock)
    with caplog.at_level(logging.WARNING, "lockstep"):
        for second in range(0, 100, 5):
            clock.now = float(second)
            slow = {"a wait for its own input": 0.8 * second, "callbacks or hooks": 0.05 * second}
            quick = {"callbacks or hooks": 0.1 * second}
            watched.update(accounts(quick, slow, quick))
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 2
    assert messages[0] == (
        "worker 1 holds the others up: of the last 10 s it spent 8.5 s by itself, mostly in a wait for its own input; "
        "worker 0 spent 1.0 s. Training goes on."
    )


@pytest.mark.parametrize("shares", [(0.9, 0.8), (0.3, 0.01), (0.6, 0.3), (0.0, 0.0)])
def test_nobody_is_named_where_all_are_alike_or_nobody_waits_much(
    shares: tuple[float, float], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    watched = Stragglers(("worker 0", "worker 1"), clock)
    with caplog.at_level(logging.WARNING, "lockstep"):
        for second in range(0, 100, 5):
            clock.now = float(second)
            watched.update(accounts(*({"callbacks or hooks": share * second} for share in shares)))
    assert not caplog.records


def test_what_came_before_a_run_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watched = Stragglers(("worker 0", "worker 1"), clock)
    with caplog.at_level(logging.WARNING, "lockstep"):
        watched.update(accounts({"a": 0.0}, {"a": 0.0}))
        watched.reset()
        clock.now = 100.0
        watched.update(accounts({"a": 100.0}, {"a": 0.0}))
        clock.now = 105.0
        watched.update({0: {"spent": {"a": 105.0}}})
        clock.now = 116.0
        watched.update(accounts({"a": 105.0}, {"a": 0.0}))
    assert not caplog.records


def _stuck_here(stuck: threading.Event, release: threading.Event) -> None:
    stuck.set()
    release.wait(20)


@pytest.mark.parametrize(
    ("place", "limits", "setting"),
    [
        (progress.CALLBACKS, Limits(progress=0.01), "LOCKSTEP_PROGRESS_TIMEOUT"),
        (progress.ELSEWHERE, Limits(progress=0.01), "LOCKSTEP_PROGRESS_TIMEOUT"),
        (progress.STEP, Limits(progress=0.01, compile=0.02), "LOCKSTEP_COMPILE_TIMEOUT"),
        (progress.DEVICES, Limits(progress=0.01, compile=0.02), "LOCKSTEP_COMPILE_TIMEOUT and LOCKSTEP_PROGRESS"),
    ],
)
def test_a_stuck_main_thread_is_found_with_its_place(place: str, limits: Limits, setting: str) -> None:
    found, stuck, release = Progress(), threading.Event(), threading.Event()

    def main() -> None:
        found.enter()
        found.at(place)
        _stuck_here(stuck, release)

    thread = threading.Thread(target=main)
    thread.start()
    assert stuck.wait(20)
    found.since -= 0.05
    assert stall("worker 1", found, Limits()) is None
    told = stall("worker 1", found, limits)
    release.set()
    thread.join(20)
    assert told is not None
    assert setting in told[0] and f"worker 1 has been in {place} for" in told[0]
    assert "_stuck_here(stuck, release)" in told[1]
    assert stacks(found) == "  (it has ended)\n"


def test_who_waits_for_others_has_longer_than_any_of_them() -> None:
    found = Progress()
    found.at(progress.AGREEING)
    found.since -= 0.25
    assert stall("worker 1", found, Limits(progress=0.1, compile=0.2)) is None
    found.since -= 0.1
    assert stall("worker 1", found, Limits(progress=0.1, compile=0.2)) is not None


def test_a_stuck_reader_is_shown_too() -> None:
    found, stuck, release = Progress(), threading.Event(), threading.Event()
    reader = threading.Thread(target=_stuck_here, args=(stuck, release), name="lockstep-reader")
    reader.start()
    assert stuck.wait(20)
    found.at(progress.READING)
    told = stacks(found)
    release.set()
    reader.join(20)
    assert "and its reader at:" in told and "release.wait(20)" in told


def test_the_last_one_comes_first() -> None:
    told = behind(
        {0: {"dispatches": 6, "where": "callbacks"}, 1: {"dispatches": 5, "where": "a step"}, 2: {}},
        ("worker 0", "worker 1", "worker 2"),
    )
    assert told == "worker 1 after 5 dispatches in a step; worker 0 after 6 dispatches in callbacks"
