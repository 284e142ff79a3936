"""The end of the chief's program: it waits for tasks that are alive, and for nobody else."""

from __future__ import annotations

import threading
import time

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.coordinator import Coordinator
from lockstep._engine.servers.messages import Message


def _nothing() -> None:
    pass


def test_a_task_that_is_busy_is_awaited_until_it_leaves() -> None:
    coordinator = Coordinator("worker 0", {}, Limits(silence=0.3))
    connection = coordinator.members.connect("worker 1", "a", _nothing)
    coordinator.end_job()

    def live() -> None:
        for _ in range(12):
            coordinator.members.beat("worker 1")
            time.sleep(0.05)
        coordinator.members.leave("worker 1", connection)

    alive = threading.Thread(target=live)
    alive.start()
    began = time.monotonic()
    assert coordinator.members.wait_until_left(60.0) == []
    assert 0.5 < time.monotonic() - began < 10
    alive.join()


def test_a_task_that_gives_no_sign_of_life_is_not_awaited() -> None:
    coordinator = Coordinator("worker 0", {}, Limits(silence=0.2))
    coordinator.members.connect("worker 1", "a", _nothing)
    began = time.monotonic()
    assert coordinator.members.wait_until_left(60.0) == []
    assert time.monotonic() - began < 10


def test_servers_end_after_the_workers() -> None:
    coordinator = Coordinator("worker 0", {"ps 0": "10.0.0.2:2222"})
    connections = {task: coordinator.members.connect(task, "a", _nothing) for task in ("worker 1", "ps 0")}
    coordinator.end_job()

    def is_told_to_end(task: str) -> bool:
        return bool(coordinator.requests.handle(task, Message("state")).facts["ended"])

    assert is_told_to_end("worker 1") and not is_told_to_end("ps 0")
    assert coordinator.members.wait_until_workers_left(0.1) == ["worker 1"]
    coordinator.members.leave("worker 1", connections["worker 1"])
    assert coordinator.members.wait_until_workers_left(60.0) == []
    assert coordinator.members.wait_until_left(0.1) == ["ps 0"]
    coordinator.release_servers()
    assert is_told_to_end("ps 0")


def test_the_limit_holds_and_who_is_there_is_named() -> None:
    coordinator = Coordinator("worker 0", {}, Limits(silence=30.0))
    coordinator.members.connect("worker 1", "a", _nothing)
    assert coordinator.members.wait_until_left(0.1) == ["worker 1"]
