"""Jobs of threads: calls, epochs, leases, cuts and rollbacks, without sockets."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep._engine.servers.coordinator import Coordinator
from lockstep._engine.servers.coordinator_service import LocalChannel
from lockstep._engine.servers.job import Job
from lockstep._engine.servers.message_channel import PendingRequest
from lockstep._engine.servers.messages import Message
from lockstep.errors import MismatchError
from tests.engine.servers import programs

pytestmark = pytest.mark.slow


def _run(workers: int, servers: int, **options: Any) -> dict[str, Any]:
    jobs = Job.in_process(workers, servers)
    with ThreadPoolExecutor(workers) as pool:
        others = [pool.submit(programs.work, job) for job in jobs[1:]]
        result = programs.chief(jobs[0], **options)
        for other in others:
            facts, values = other.result(30)
            assert facts["steps"] == 2 * programs.BATCHES
            np.testing.assert_array_equal(values["counter"], result["values"]["counter"])
    return result


@pytest.mark.parametrize("is_known", [True, False])
def test_every_batch_is_applied_once(is_known: bool) -> None:
    result = _run(3, 2, is_known=is_known)
    assert round(float(result["values"]["counter"])) == 2 * programs.BATCHES


def test_synchronous_training_is_equal_to_the_bit_for_any_number_of_tasks() -> None:
    first = _run(1, 1, mode="sync", replicas=3)
    for workers, servers in ((2, 1), (3, 2), (1, 2)):
        other = _run(workers, servers, mode="sync", replicas=3)
        assert other["losses"] == first["losses"]
        for name, value in first["values"].items():
            np.testing.assert_array_equal(value, other["values"][name])


def test_the_next_leases_are_asked_for_with_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    begin = LocalChannel.begin

    def begin_ahead(self: LocalChannel, message: Message) -> PendingRequest:
        asked.append(message.facts["first"])
        assert message.facts["seconds"] == 0.0
        return begin(self, message)

    monkeypatch.setattr(LocalChannel, "begin", begin_ahead)
    assert round(float(_run(2, 1)["values"]["counter"])) == 2 * programs.BATCHES
    assert asked and asked == sorted(set(asked)), "of tickets after those that the task has, since it does not go back"


def test_tickets_do_not_wake_those_who_wait_for_the_end_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator("worker 0", {})
    number = coordinator.begin("fit", {})
    state = coordinator.state
    waits: list[float] = []
    wait = state.changed.wait
    is_waiting = threading.Event()

    def count(seconds: float) -> bool:
        waits.append(seconds)
        is_waiting.set()
        return wait(seconds)

    monkeypatch.setattr(state.changed, "wait", count)
    with ThreadPoolExecutor(1) as pool:
        asked = Message("result", {"call": number, "seconds": 1.0})
        answer = pool.submit(coordinator.requests.handle, "worker 1", asked)
        assert is_waiting.wait(30)
        for until in range(1, 100):
            coordinator.release(until, {})
        coordinator.end(Message("result", {"result": 3}))
        assert answer.result(30).facts["result"] == 3
    assert len(waits) <= 2


def test_another_call_than_the_chiefs_is_an_error() -> None:
    jobs = Job.in_process(2, 1)
    jobs[0].begin("fit", {"epochs": 2})
    with pytest.raises(MismatchError, match=r"Call 0 differs.*worker 1"):
        jobs[1].begin("fit", {"epochs": 3})


def test_a_task_that_joins_late_gets_the_results_of_ended_calls() -> None:
    jobs = Job.in_process(2, 1)
    programs.chief(jobs[0])
    facts, values = programs.work(jobs[1])
    assert facts["steps"] == 2 * programs.BATCHES and "counter" in values


def test_training_goes_on_from_the_last_cut(tmp_path: Path) -> None:
    undisturbed = _run(2, 2, mode="sync", replicas=2)
    jobs = Job.in_process(2, 2)
    coordinator = jobs[0]._coordinator
    assert coordinator is not None
    disturbed = threading.Event()

    def restart(ticket: int) -> None:
        if ticket == 33 and not disturbed.is_set():
            disturbed.set()
            coordinator.members.connect("ps 1", "another process", lambda: None)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(programs.work, jobs[1])
        result = programs.chief(jobs[0], mode="sync", replicas=2, directory=str(tmp_path), on_ticket=restart)
        other.result(30)
    assert disturbed.is_set()
    assert result["losses"] == undisturbed["losses"]
    for name, value in undisturbed["values"].items():
        np.testing.assert_array_equal(value, result["values"][name])
