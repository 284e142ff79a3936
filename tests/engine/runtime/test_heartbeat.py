"""Signs of life, with clocks that run faster than they do between machines."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from lockstep._engine.runtime import heartbeat as heartbeat_
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.heartbeat import HeartbeatMonitor
from lockstep._engine.runtime.limits import Limits
from tests.engine.runtime.jobs import eventually
from tests.engine.runtime.store import Store, controls

BEAT, GRACE, SUSPECT, HEARING = 0.02, 0.15, 0.2, 1.0


class Ended(BaseException):
    """Stands for the end of the process, on the thread that ends it."""


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs the clocks faster, and collects the exit codes of the processes that would have ended."""
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    for name, value in {
        "_HEARTBEAT_SECONDS": BEAT,
        "_GRACE_SECONDS": GRACE,
        "_SUSPECT_SECONDS": SUSPECT,
        "_SHUTDOWN_SECONDS": HEARING,
    }.items():
        monkeypatch.setattr(heartbeat_, name, value)
    return codes


@pytest.fixture
def store() -> Store:
    """What the tasks share."""
    return Store()


class Pair:
    """Two tasks, of which the first is observed."""

    def __init__(self, store: Store, silence: float = 0.5) -> None:
        self.controls = controls(2, store)
        self.dogs = [HeartbeatMonitor(c, Limits(silence=silence)) for c in self.controls]
        for dog in self.dogs:
            dog.start()

    @property
    def first(self) -> Control:
        return self.controls[0]

    def close(self) -> None:
        for dog in self.dogs:
            dog.stop()
            dog._thread.join()
            dog._guard.join()


@pytest.fixture
def pair(store: Store) -> Iterator[Pair]:
    """Both alive."""
    pair = Pair(store)
    eventually(lambda: len(pair.first.listing("heartbeats")) == 2, lambda: "both beat")
    yield pair
    pair.close()


def test_the_living_are_left_alone(pair: Pair, ends: list[int]) -> None:
    with pair.first.running("fit"):
        assert pair.dogs[0].suspects() == []
        begin = pair.first.listing("heartbeats")["1"]
        eventually(lambda: pair.first.listing("heartbeats")["1"] > begin + 40, lambda: "time passes")
    assert ends == []


def test_the_silent_end_the_run_of_the_others(pair: Pair, ends: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    pair.dogs[1].stop()
    assert pair.dogs[0].suspects() == [1]
    with pair.first.running("fit"):
        eventually(lambda: ends, lambda: "it ends")
    assert ends == [1]
    told = "must send a heartbeat at least every 0.5 s (LOCKSTEP_SILENCE_TIMEOUT). worker 1 does not"
    assert told in capfd.readouterr().err
    found = pair.controls[1].failure()
    assert found is not None and (found["process"], found["by"]) == (1, 0) and told in found["message"]


def test_a_task_that_never_shows_a_sign_of_life_is_silent_too(ends: list[int]) -> None:
    """It was stopped right after it had joined."""
    first, _ = controls(2)
    dog = HeartbeatMonitor(first, Limits(silence=0.5))
    dog.start()
    with first.running("fit"):
        eventually(lambda: ends, lambda: "it ends")
    dog.stop()
    assert ends == [1]


def test_silence_between_runs_is_nobody_s_concern(pair: Pair, ends: list[int]) -> None:
    pair.dogs[1].stop()
    begin = pair.first.listing("heartbeats")["0"]
    eventually(lambda: pair.first.listing("heartbeats")["0"] > begin + 60, lambda: "time passes")
    assert ends == []


def test_a_failure_leaves_the_main_thread_a_moment(pair: Pair, ends: list[int]) -> None:
    with pair.first.running("fit"):
        pair.controls[1].announce_failure("OSError", "disk gone")
        began = time.monotonic()
        eventually(lambda: ends, lambda: "it ends")
        assert time.monotonic() - began >= GRACE
    assert pair.first.ended() == {0}


def test_a_main_thread_that_fails_by_itself_is_left_to_it(pair: Pair, ends: list[int]) -> None:
    with pair.first.running("fit"):
        pair.controls[1].announce_failure("OSError", "disk gone")
        eventually(lambda: pair.dogs[0]._doomed, lambda: "it has noticed")
    eventually(lambda: pair.dogs[0]._doomed is None, lambda: "it has noticed that the run is over")
    assert ends == []


def test_a_service_that_has_gone(pair: Pair, ends: list[int], store: Store) -> None:
    second = pair.controls[1]
    with second.running("fit"):
        store.gone = True
        eventually(lambda: ends, lambda: "it ends")
    assert ends == [1]


def test_a_service_that_does_not_answer(ends: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    """As when the first task, with the service, is stopped: whoever asks waits."""
    answers = threading.Event()
    answers.set()
    store = Store(lambda operation: answers.wait(20) and None)
    pair = Pair(store)
    eventually(lambda: len(pair.first.listing("heartbeats")) == 2, lambda: "both beat")
    with pair.controls[1].running("fit"):
        answers.clear()
        eventually(lambda: ends, lambda: "it ends")
    answers.set()
    assert "worker 0 does not: its process is stopped" in capfd.readouterr().err
    pair.close()


def test_a_failed_chief_stays_until_the_others_know(pair: Pair) -> None:
    chief = threading.Thread(target=pair.dogs[0].shut_down)
    chief.start()
    chief.join(2 * SUSPECT)
    assert chief.is_alive(), "the other one is alive and has not learned it"
    pair.controls[1].announce_end()
    chief.join(HEARING / 2)
    assert not chief.is_alive()


def test_a_failed_chief_stays_until_the_others_have_ended(pair: Pair) -> None:
    connected = {1}
    pair.dogs[0]._connected_processes = lambda: connected
    pair.controls[1].announce_end()
    chief = threading.Thread(target=pair.dogs[0].shut_down)
    chief.start()
    chief.join(2 * SUSPECT)
    assert chief.is_alive(), "the other one has announced its end, and has not ended"
    connected.clear()
    chief.join(HEARING / 2)
    assert not chief.is_alive()


def test_a_failed_chief_does_not_wait_for_the_dead(pair: Pair) -> None:
    pair.dogs[1].stop()
    began = time.monotonic()
    pair.dogs[0].shut_down()
    assert SUSPECT <= time.monotonic() - began < HEARING


def test_a_failed_chief_does_not_wait_for_ever(pair: Pair) -> None:
    began = time.monotonic()
    pair.dogs[0].shut_down()
    assert HEARING <= time.monotonic() - began < 5 * HEARING


def test_any_other_failed_task_goes_at_once(pair: Pair) -> None:
    began = time.monotonic()
    pair.dogs[1].shut_down()
    assert time.monotonic() - began < SUSPECT
    assert pair.first.ended() == {1}
