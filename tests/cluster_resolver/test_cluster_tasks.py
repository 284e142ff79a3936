from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lockstep.cluster_resolver import Task
from lockstep.errors import ClusterSpecError


def test_a_task_has_a_name_for_people_and_one_for_tensorflow() -> None:
    task = Task("worker", 1)
    assert str(task) == task.label == "worker 1"
    assert task.path == "/job:worker/task:1"


def test_tasks_are_values() -> None:
    assert Task("worker", 1) == Task("worker", 1) != Task("worker", 2)
    assert len({Task("ps", 0), Task("ps", 0)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Task("worker", 1).index = 2  # pyright: ignore


def test_tasks_sort_by_role_then_index() -> None:
    order = [Task("chief", 0), Task("worker", 2), Task("worker", 10), Task("ps", 0), Task("evaluator", 0)]
    assert sorted(reversed(order)) == order
    assert Task("worker", 1) >= Task("chief", 0)
    with pytest.raises(TypeError):
        sorted([Task("ps", 0), "ps"])  # pyright: ignore


@pytest.mark.parametrize(("job", "index", "field"), [("wroker", 0, "Task.type"), ("worker", -1, "Task.index")])
def test_impossible_tasks_are_refused(job: str, index: int, field: str) -> None:
    with pytest.raises(ClusterSpecError, match=f"^{field} must") as caught:
        Task(job, index)
    assert f"Correct example: {field} = " in str(caught.value)


@pytest.mark.parametrize("index", ["0", 1.5, True, None, 10**9])
def test_an_index_is_a_small_integer(index: Any) -> None:
    with pytest.raises(ClusterSpecError, match=r"^Task\.index must be an integer"):
        Task("worker", index)
