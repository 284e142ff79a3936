from __future__ import annotations

import copy
import dataclasses
import pickle
from types import MappingProxyType
from typing import Any

import pytest

from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.errors import ClusterSpecError

DENSE = {"worker": ["w0:1", "w1:1", "w2:1"], "ps": ["p0:1"]}
SPARSE = {"worker": {4: "w4:1", 1: "w1:1"}, "chief": ["c:1"]}

# The cluster, the field that is wrong, the received value, the correct example.
BAD: list[tuple[Any, str, str, str]] = [
    (None, "cluster", "None", '"worker": ["host1:2222"'),
    ([], "cluster", "[]", '"worker": ["host1:2222"'),
    ("worker", "cluster", "'worker'", '"worker": ["host1:2222"'),
    (b"{}", "cluster", "b'{}'", '"worker": ["host1:2222"'),
    ({"Worker": ["h:1"]}, "cluster", "'Worker'", '"worker": ["host1:2222"'),
    ({"workers": ["h:1"]}, "cluster", "'workers'", '"worker": ["host1:2222"'),
    ({"tpu_worker": ["h:1"]}, "cluster", "'tpu_worker'", '"worker": ["host1:2222"'),
    ({1: ["h:1"]}, "cluster", "1", '"worker": ["host1:2222"'),
    ({None: ["h:1"]}, "cluster", "None", '"worker": ["host1:2222"'),
    ({"worker": "h:1"}, 'cluster["worker"]', "'h:1'", '["host1:2222"'),
    ({"worker": None}, 'cluster["worker"]', "None", '["host1:2222"'),
    ({"worker": 2}, 'cluster["worker"]', "2", '["host1:2222"'),
    ({"worker": {"h:1"}}, 'cluster["worker"]', "{'h:1'}", '["host1:2222"'),
    ({"worker": []}, 'cluster["worker"]', "[]", '["host1:2222"'),
    ({"worker": {}}, 'cluster["worker"]', "[]", '["host1:2222"'),
    ({"chief": [], "worker": ["h:1"]}, 'cluster["chief"]', "[]", '["host1:2222"'),
    ({"master": []}, 'cluster["master"]', "[]", '["host1:2222"'),
    ({"chief": ["a:1", "b:1"]}, 'cluster["chief"]', "['a:1', 'b:1']", '["host0:2222"]'),
    ({"master": ["a:1", "b:1"]}, 'cluster["master"]', "['a:1', 'b:1']", '["host0:2222"]'),
    ({"evaluator": ["a:1", "b:1"]}, 'cluster["evaluator"]', "['a:1', 'b:1']", '["host0:2222"]'),
    ({"chief": {1: "a:1"}}, 'cluster["chief"]', "{1: 'a:1'}", '["host0:2222"]'),
    ({"chief": ["a:1"], "master": ["b:1"]}, "cluster", "{'chief'", '"chief": ["host0:2222"]'),
    ({"worker": {True: "h:1"}}, 'cluster["worker"]', "True", '{1: "host1:2222"}'),
    ({"worker": {1.0: "h:1"}}, 'cluster["worker"]', "1.0", '{1: "host1:2222"}'),
    ({"worker": {"1": "h:1"}}, 'cluster["worker"]', "'1'", '{1: "host1:2222"}'),
    ({"worker": {-1: "h:1"}}, 'cluster["worker"]', "-1", '{1: "host1:2222"}'),
    ({"worker": {10**9: "h:1"}}, 'cluster["worker"]', "1000000000", '{1: "host1:2222"}'),
    ({"worker": {10**5000: "h:1"}}, 'cluster["worker"]', "<int that cannot be printed>", '{1: "host1:2222"}'),
    ({"worker": {None: "h:1"}}, 'cluster["worker"]', "None", '{1: "host1:2222"}'),
    ({"worker": {2: 7}}, 'cluster["worker"][2]', "7", '"host1:2222"'),
    ({"worker": ["h:1", ["i:1"]]}, 'cluster["worker"][1]', "['i:1']", '"host1:2222"'),
]


@pytest.mark.parametrize(("cluster", "field", "received", "example"), BAD)
def test_bad_clusters_name_field_value_and_example(cluster: Any, field: str, received: str, example: str) -> None:
    with pytest.raises(ClusterSpecError) as caught:
        ClusterSpec(cluster)
    rule, value, correct = str(caught.value).split("\n")
    assert rule.startswith(f"{field} ")
    assert value.startswith(f"Received: {received}")
    assert example in correct


def test_an_unknown_job_is_told_the_known_ones() -> None:
    with pytest.raises(ClusterSpecError, match='"chief", "master", "worker", "ps", "evaluator"'):
        ClusterSpec({"wroker": ["h:1"]})


def test_errors_are_value_errors_of_bounded_length() -> None:
    with pytest.raises(ValueError, match="Received") as caught:
        ClusterSpec({"worker" * 10_000: ["h:1"] * 10_000})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("nothing", [[], {}, ()])
@pytest.mark.parametrize("job", ["ps", "evaluator"])
def test_no_parameter_servers_or_evaluators_is_the_same_as_not_naming_them(job: str, nothing: Any) -> None:
    assert ClusterSpec({"worker": ["h:1"], job: nothing}) == ClusterSpec({"worker": ["h:1"]})


def test_a_dense_cluster_reads_as_tensorflow_has_it() -> None:
    spec = ClusterSpec(DENSE)
    assert spec.as_dict() == DENSE
    assert spec.jobs == ["worker", "ps"]
    assert spec.num_tasks("worker") == 3
    assert spec.task_indices("worker") == [0, 1, 2]
    assert spec.task_address("worker", 2) == "w2:1"
    assert spec.job_tasks("worker") == ["w0:1", "w1:1", "w2:1"]
    assert repr(spec) == "ClusterSpec({'ps': ['p0:1'], 'worker': ['w0:1', 'w1:1', 'w2:1']})"


def test_a_sparse_cluster_reads_as_tensorflow_has_it() -> None:
    spec = ClusterSpec(SPARSE)
    assert spec.as_dict() == {"worker": {1: "w1:1", 4: "w4:1"}, "chief": ["c:1"]}
    assert spec.num_tasks("worker") == 2
    assert spec.task_indices("worker") == [1, 4]
    assert spec.job_tasks("worker") == [None, "w1:1", None, None, "w4:1"]


def test_a_sparse_job_without_gaps_is_dense() -> None:
    assert ClusterSpec({"worker": {1: "b:1", 0: "a:1"}}).as_dict() == {"worker": ["a:1", "b:1"]}


def test_tasks_are_sorted_by_role_and_index() -> None:
    tasks = ClusterSpec({"evaluator": ["e:1"], **SPARSE}).tasks
    assert [task.label for task in tasks] == ["chief 0", "worker 1", "worker 4", "evaluator 0"]
    assert tasks[1] == Task("worker", 1)


def test_equality_hash_and_truth() -> None:
    other_order = ClusterSpec({"ps": ("p0:1",), "worker": {2: "w2:1", 0: "w0:1", 1: "w1:1"}})
    assert ClusterSpec(DENSE) == other_order == ClusterSpec(other_order)
    assert hash(ClusterSpec(DENSE)) == hash(other_order)
    assert ClusterSpec(DENSE) != ClusterSpec(SPARSE)
    assert ClusterSpec(DENSE) != DENSE
    assert ClusterSpec(DENSE)
    assert not ClusterSpec({})


def test_any_mapping_will_do() -> None:
    assert ClusterSpec(MappingProxyType(DENSE)) == ClusterSpec(DENSE)


def test_nothing_reaches_inside() -> None:
    spec = ClusterSpec(DENSE)
    worker = spec.as_dict()["worker"]
    assert isinstance(worker, list)
    worker.append("x:1")
    spec.jobs.append("evaluator")
    assert spec == ClusterSpec(DENSE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec._jobs = {}  # pyright: ignore


def test_it_can_be_copied_and_pickled() -> None:
    spec = ClusterSpec(SPARSE)
    assert copy.deepcopy(spec) == spec == pickle.loads(pickle.dumps(spec))


@pytest.mark.parametrize("job", ["ps", "", None, 1, []])
def test_unknown_jobs_are_refused_with_the_known_ones(job: Any) -> None:
    spec = ClusterSpec({"chief": ["c:1"], "worker": ["w:1"]})
    for method in (spec.num_tasks, spec.task_indices, spec.job_tasks):
        with pytest.raises(ClusterSpecError, match=r'job_name .*"chief", "worker"') as caught:
            method(job)
        assert f"Received: {job!r}" in str(caught.value)


@pytest.mark.parametrize("index", [3, -1, 10**9, True, 1.0, "0", None, []])
def test_unknown_indices_are_refused_with_the_known_ones(index: Any) -> None:
    with pytest.raises(ClusterSpecError, match="has 3 tasks, index 0 to 2") as caught:
        ClusterSpec(DENSE).task_address("worker", index)
    assert "task_index must be an integer without quotes" in str(caught.value)
    assert f"Received: {index!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("tasks", "told"), [({1: "a:1", 5: "b:1"}, "2 tasks, index 1, 5"), (["a:1"], "1 task, index 0"), ({7: "a:1"}, "7")]
)
def test_what_indices_exist_is_told_for_every_kind_of_job(tasks: Any, told: str) -> None:
    with pytest.raises(ClusterSpecError, match=told):
        ClusterSpec({"worker": tasks}).task_address("worker", 99)
