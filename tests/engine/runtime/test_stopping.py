"""Any task's wish to stop training stops all after the same step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.runtime.control import Control
from lockstep.errors import MissingTaskError, PeerError
from tests.engine.runtime.properties import steady
from tests.engine.runtime.store import controls

PATIENCE = 30.0
POINTS = 12


def train(control: Control, wanted: int | None, pause: float, after: Callable[[], Any] = lambda: None) -> list[int]:
    """Passes points, while another thread looks now and then; returns after which points of two trainings it stops."""
    ends: list[int] = []
    for _ in range(2):
        with control.running("fit") as run:
            wants, at = False, 0
            for at in range(1, POINTS + 1):
                wants = wants or at == wanted
                time.sleep(pause)
                if control.stopping.stops_here(run, wants, PATIENCE):
                    break
            ends.append(at)
            after()
    return ends


def _looking(here: list[Control], stop: threading.Event) -> None:
    while not stop.wait(0.002):
        for control in here:
            control.stopping.poll()


def _all(here: list[Control], wanted: list[int | None], pauses: list[float]) -> list[list[int]]:
    stop, meeting = threading.Event(), threading.Barrier(len(here))
    with ThreadPoolExecutor(len(here) + 1) as threads:
        threads.submit(_looking, here, stop)
        futures = [
            threads.submit(train, c, w, p, lambda: meeting.wait(PATIENCE))
            for c, w, p in zip(here, wanted, pauses, strict=True)
        ]
        try:
            return [future.result(PATIENCE) for future in futures]
        finally:
            stop.set()


@settings(steady, max_examples=40)
@given(
    st.lists(
        st.tuples(st.none() | st.integers(1, POINTS), st.sampled_from([0.0, 0.001, 0.004])), min_size=2, max_size=4
    )
)
def test_all_stop_after_the_same_step(tasks: list[tuple[int | None, float]]) -> None:
    wanted, pauses = [w for w, _ in tasks], [p for _, p in tasks]
    first, *others = _all(controls(len(tasks)), wanted, pauses)
    assert all(found == first for found in others)
    wishes = [w for w in wanted if w is not None]
    if not wishes:
        assert first == [POINTS] * 2
    elif None not in wanted and len(set(wishes)) == 1:  # As one device would.
        assert first == [wishes[0]] * 2
    else:
        assert all(min(wishes) <= end <= POINTS for end in first)


def test_one_task_need_not_reach_a_point_to_answer() -> None:
    """Its main thread may be in a callback, or compiling: its other thread says where it is."""
    first, second = controls(2)
    with first.running("fit") as run, second.running("fit") as other:
        assert not any(second.stopping.stops_here(other, False, PATIENCE) for _ in range(3))
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(first.stopping.stops_here, run, True, PATIENCE)
            while not future.done():
                second.stopping.poll()
        assert future.result() is False
        assert [first.stopping.stops_here(run, True, PATIENCE) for _ in range(3)] == [False, False, True]
        assert second.stopping.stops_here(other, False, PATIENCE) is True


def test_who_does_not_answer_is_named() -> None:
    first, second, third = controls(3)
    with first.running("fit") as run, third.running("fit"):
        third.stopping.poll()
        with pytest.raises(MissingTaskError, match=r"within 0.05 s .* Missing: worker 1, worker 2\."):
            first.stopping.stops_here(run, True, 0.05)
        second.announce_failure("OSError", "disk gone")
        with pytest.raises(PeerError, match="disk gone"):
            first.stopping.stops_here(run, True, PATIENCE)
