"""The common end of tasks that are threads of this process and share a store."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.runtime import preemption as preemption_
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.failure import is_agreed
from lockstep._engine.runtime.preemption import Preemption
from lockstep.errors import MissingTaskError, PeerError, Preempted
from tests.engine.runtime.store import Store, controls

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def exits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collects the codes that the process would have ended with."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    yield codes


class Task:
    """A task that does the same things as all others, at a pace of its own, and hears of the others all the time."""

    def __init__(self, control: Control, things: int, seed: int = 0, grace: float = PATIENCE) -> None:
        self.preemption: Preemption = control.preemption
        self.preemption.grace = grace
        self.done: list[int] = []
        self.error: BaseException | None = None
        self._pace = random.Random(seed)
        self._things = things
        self._stop = threading.Event()
        self._wake = threading.Event()
        self.preemption.wake = self._wake.set
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._main = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._listener.start()
        self._main.start()

    def join(self) -> None:
        self._main.join(PATIENCE)
        assert not self._main.is_alive(), "a task hangs"
        self._stop.set()
        self._listener.join(PATIENCE)

    def _listen(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(0.002)
            self.preemption.poll()

    def _run(self) -> None:
        try:
            with self.preemption.run():
                for number in range(self._things):
                    self.preemption.sync_point()
                    self.done.append(number)
                    if self._pace.random() < 0.3:
                        time.sleep(self._pace.random() * 0.004)
        except BaseException as error:
            self.error = error


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    tasks=st.integers(2, 4),
    asked=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    after=st.floats(0, 0.03),
    seed=st.integers(0, 1000),
)
def test_all_end_before_the_same_thing(tasks: int, asked: list[int], after: float, seed: int) -> None:
    pace = random.Random(seed)
    store = Store(lambda operation: time.sleep(pace.random() * 0.002))
    found = [Task(c, 100000, seed + i) for i, c in enumerate(controls(tasks, store))]
    for task in found:
        task.start()
    time.sleep(after)
    for i in asked:
        found[i % tasks].preemption.request()
    for task in found:
        task.join()
    assert all(isinstance(task.error, Preempted) for task in found), [task.error for task in found]
    assert len({len(task.done) for task in found}) == 1
    assert len({str(task.error) for task in found}) == 1, "all know who was asked first"


def test_those_who_are_behind_go_on_to_the_agreed_end() -> None:
    first, second = (c.preemption for c in controls(2))
    for one in (first, second):
        one.grace = PATIENCE
    with first.run(), second.run():
        for _ in range(5):
            first.sync_point()
        second.sync_point()
        second.request()
        first.poll(), second.poll(), first.poll(), second.poll()
        for _ in range(4):
            second.sync_point()
        for one in (first, second):
            assert one.count == 6  # The run, and five things.
            with pytest.raises(Preempted, match="worker 1 was asked to end"):
                one.sync_point()
            with pytest.raises(Preempted):
                one.check()


def test_a_wait_goes_on_while_the_end_is_further() -> None:
    first, second = (c.preemption for c in controls(2))
    with pytest.raises(Preempted), first.run():
        first.sync_point()
        first.request()
        first.poll(), second.poll(), first.poll(), second.poll()
        second.check()  # It has not even begun.
        first.check()


def test_nobody_is_asked() -> None:
    alone = Preemption()
    with alone.run():
        alone.sync_point()
        alone.check()
    assert alone.count == 2
    assert not alone.is_asked and not alone.has_ended


def test_a_process_alone_ends_at_once() -> None:
    alone = Preemption()
    alone.grace = PATIENCE
    with pytest.raises(Preempted, match="this process was asked to end") as raised, alone.run():
        alone.sync_point()
        alone.request()
        alone.sync_point()
    assert raised.value.code == 143
    assert is_agreed(raised.value)
    assert alone.has_ended


def test_a_request_outlasts_its_run() -> None:
    """A run may have nothing left to do; the program's next one does not begin."""
    alone = Preemption()
    alone.grace = PATIENCE
    with alone.run():
        alone.request()
    with pytest.raises(Preempted), alone.run():
        raise AssertionError("it begins")


def test_what_one_task_does_by_itself_neither_counts_nor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Preemption()
    monkeypatch.setattr(preemption_, "ALONE", alone)
    ours = controls(2)[0].preemption
    ours.grace = PATIENCE
    with ours.run():
        alone._asked, alone._end = "this process", 0
        with alone.run():
            alone.sync_point()
            alone.check()
        assert alone.count == 0


def test_another_task_s_failure_ends_the_wait_for_the_agreement() -> None:
    first, second = controls(2)
    first.preemption.grace = PATIENCE
    with pytest.raises(PeerError, match="disk gone"), first.preemption.run():
        first.preemption.request()
        second.announce_failure("OSError", "disk gone")
        first.preemption.sync_point()


def test_whoever_comes_too_late_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption_, "_LATE_SECONDS", 0.1)
    first, _ = controls(2)
    first.preemption.grace = 0.1
    first.preemption.request("worker 1")
    with pytest.raises(MissingTaskError, match="worker 1's request to end"), first.preemption.run():
        raise AssertionError("it begins")


def _ask(one: Preemption) -> threading.Thread:
    """Asks, and returns the thread that ends the process when its time is over."""
    before = set(threading.enumerate())
    one.request()
    (thread,) = (t for t in set(threading.enumerate()) - before if t.name == "lockstep-grace")
    return thread


def test_a_process_ends_when_its_time_is_over(exits: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    alone = Preemption()
    alone.grace = 0.05
    with alone.run():
        _ask(alone).join(PATIENCE)
    assert exits == [143]
    told = capfd.readouterr().err
    assert "the 0.05 s that a request to end (SIGTERM, to this process) leaves (LOCKSTEP_GRACE) are over" in told
    assert "It is in the program, between steps" in told


def test_saving_may_take_its_time(exits: list[int]) -> None:
    alone = Preemption()
    alone.grace = 0.05
    with pytest.raises(Preempted), alone.run():
        end = _ask(alone)
        try:
            alone.sync_point()
        except Preempted:
            alone.mark_ended()
            end.join(PATIENCE)
            raise
    assert exits == []


def test_a_program_that_does_not_train_any_more_is_left_alone(exits: list[int]) -> None:
    alone = Preemption()
    alone.grace = 0.05
    with alone.run():
        end = _ask(alone)
    end.join(PATIENCE)
    assert exits == []


def test_tasks_that_were_asked_to_end_may_leave_others_that_still_save() -> None:
    first, second = controls(2)
    second.preemption.mark_ended()
    second.announce_leaving()
    assert first.left() == {1}
    with first.running("fit"):
        first.check_peers()
