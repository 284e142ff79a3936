from __future__ import annotations

from typing import Any

import pytest

from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.cluster_resolver._roles import (
    chief_task,
    id_in_cluster,
    is_chief,
    known_address,
    training_tasks,
    worker_count,
)
from lockstep.errors import ClusterSpecError

WORKERS = ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": ["p:1"]})
CHIEF = ClusterSpec({"worker": ["w0:1", "w1:1"], "chief": ["c:1"], "ps": ["p:1"], "evaluator": ["e:1"]})
MASTER = ClusterSpec({"master": ["m:1"], "worker": ["w0:1"]})
SPARSE = ClusterSpec({"worker": {3: "w3:1", 1: "w1:1"}})
EMPTY = ClusterSpec({})


def test_the_mesh_is_the_chief_then_the_workers() -> None:
    assert training_tasks(CHIEF) == (Task("chief", 0), Task("worker", 0), Task("worker", 1))
    assert training_tasks(MASTER) == (Task("master", 0), Task("worker", 0))
    assert training_tasks(SPARSE) == (Task("worker", 1), Task("worker", 3))
    assert training_tasks(EMPTY) == ()


@pytest.mark.parametrize(
    ("spec", "chief"),
    [
        (CHIEF, Task("chief", 0)),
        (MASTER, Task("master", 0)),
        (WORKERS, Task("worker", 0)),
        (SPARSE, Task("worker", 1)),
        (ClusterSpec({"ps": ["p:1"]}), None),
        (EMPTY, None),
    ],
)
def test_the_chief_is_the_first_that_trains(spec: ClusterSpec, chief: Task | None) -> None:
    assert chief_task(spec) == chief


@pytest.mark.parametrize(
    ("spec", "task_type", "task_id", "expected"),
    [
        (WORKERS, "worker", 0, True),
        (WORKERS, "worker", 1, False),
        (WORKERS, "ps", 0, False),
        (WORKERS, "evaluator", 0, True),
        (WORKERS, "evaluator", 5, True),
        (CHIEF, "chief", 0, True),
        (CHIEF, "worker", 0, False),
        (CHIEF, "evaluator", 0, True),
        (MASTER, "master", 0, True),
        (MASTER, "worker", 0, False),
        (SPARSE, "worker", 1, True),
        (EMPTY, None, None, True),
        (EMPTY, "worker", 3, True),
    ],
)
def test_is_chief(spec: ClusterSpec, task_type: str | None, task_id: int | None, expected: bool) -> None:
    assert is_chief(spec, task_type, task_id) is expected
    assert is_chief(spec.as_dict(), task_type, task_id) is expected


@pytest.mark.parametrize(
    ("spec", "task_type", "task_id", "expected"),
    [
        (WORKERS, "worker", 1, 1),
        (CHIEF, "chief", 0, 0),
        (CHIEF, "worker", 1, 2),
        (CHIEF, "evaluator", 0, 0),
        (MASTER, "worker", 0, 1),
        (SPARSE, "worker", 3, 1),
        (EMPTY, None, None, 0),
    ],
)
def test_id_in_cluster(spec: ClusterSpec, task_type: str | None, task_id: int | None, expected: int) -> None:
    assert id_in_cluster(spec, task_type, task_id) == expected


@pytest.mark.parametrize(
    ("spec", "task_type", "expected"),
    [(WORKERS, "worker", 2), (CHIEF, "chief", 3), (CHIEF, "worker", 3), (WORKERS, "evaluator", 1), (EMPTY, None, 1)],
)
def test_worker_count(spec: ClusterSpec, task_type: str | None, expected: int) -> None:
    assert worker_count(spec, task_type) == expected


@pytest.mark.parametrize(
    ("task_type", "task_id"), [("chief", 0), ("worker", 2), ("wroker", 0), (None, 0), ("worker", None)]
)
def test_tasks_outside_the_cluster_are_refused(task_type: Any, task_id: Any) -> None:
    for question in (is_chief, id_in_cluster):
        with pytest.raises(ClusterSpecError, match=r"task_(type|id) must"):
            question(WORKERS, task_type, task_id)


def test_parameter_servers_have_no_place_among_those_who_train() -> None:
    with pytest.raises(ClusterSpecError, match="task_type must be a job that trains"):
        id_in_cluster(CHIEF, "ps", 0)
    for job in ("ps", "master", "nonsense", None):
        with pytest.raises(ClusterSpecError, match="task_type must be a job of this cluster that trains"):
            worker_count(CHIEF, job)


def test_known_address() -> None:
    spec = ClusterSpec({"worker": ["w0:1", "worker-1.address-unknown.invalid:1"]})
    assert known_address(spec, Task("worker", 0)) == "w0:1"
    assert known_address(spec, Task("worker", 1)) is None
