"""Jobs of threads: calls, epochs, leases, cuts and rollbacks, without sockets."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep._engine.servers.job import Job
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
