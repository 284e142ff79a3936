from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.cluster_resolver import (
    ClusterResolver,
    ClusterSpec,
    SimpleClusterResolver,
    Task,
    TFConfigClusterResolver,
    UnionResolver,
)
from lockstep.errors import ClusterSpecError

WORKERS = ClusterSpec({"worker": ["w0:1", "w1:1"]})
SERVERS = ClusterSpec({"ps": ["p0:1", "p1:1"]})


class OfAUser(ClusterResolver):
    """A resolver as TensorFlow's documentation has users write it: without a call to the base's __init__."""

    def __init__(self) -> None:
        self.task_type = "worker"
        self.task_id = 1

    def cluster_spec(self) -> ClusterSpec:
        return WORKERS

    def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
        return "somewhere:1"


def merged(*clusters: Any) -> dict[str, Any]:
    return UnionResolver(*map(SimpleClusterResolver, clusters)).cluster_spec().as_dict()


def test_simple_says_what_it_was_told() -> None:
    told = SimpleClusterResolver(WORKERS, "m:1", "worker", 1, "cloud", {"GPU": 8}, "grpc")
    assert told.cluster_spec() == WORKERS
    assert (told.task, told.environment, told.rpc_layer) == (Task("worker", 1), "cloud", "grpc")
    assert told.num_accelerators() == told.num_accelerators("ps", 7) == {"GPU": 8}
    assert told.master() == "grpc://m:1"
    assert told.master("worker", 0) == "grpc://w0:1"
    assert told.master("worker", 0, "http") == "http://w0:1"


def test_simple_has_defaults() -> None:
    plain = SimpleClusterResolver(WORKERS)
    assert (plain.task_type, plain.task_id, plain.task, plain.environment, plain.rpc_layer) == (
        None,
        None,
        None,
        "",
        None,
    )
    assert plain.master() == ""
    assert plain.num_accelerators() == {}


def test_simple_can_be_told_later() -> None:
    told = SimpleClusterResolver(WORKERS)
    told.task_type, told.task_id, told.rpc_layer = "worker", 0, "grpc"
    assert (told.task, told.master("worker", 1)) == (Task("worker", 0), "grpc://w1:1")
    told.task_type = told.task_id = None
    assert told.task is None


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"cluster_spec": None}, "cluster"),
        ({"cluster_spec": "worker"}, "cluster"),
        ({"cluster_spec": WORKERS, "master": None}, "master"),
        ({"cluster_spec": WORKERS, "environment": 1}, "environment"),
        ({"cluster_spec": WORKERS, "rpc_layer": 1}, "rpc_layer"),
        ({"cluster_spec": WORKERS, "task_type": "wroker"}, "task_type"),
        ({"cluster_spec": WORKERS, "task_type": "worker", "task_id": 2}, "task_id"),
        ({"cluster_spec": WORKERS, "task_type": "ps", "task_id": 0}, "task_type"),
        ({"cluster_spec": {}, "task_type": "worker", "task_id": 1}, "task_id"),
    ],
)
def test_simple_checks_what_it_is_told(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ClusterSpecError, match=f"^{field} must"):
        SimpleClusterResolver(**arguments)


def test_a_resolver_of_a_user_has_what_the_base_gives() -> None:
    own = OfAUser()
    assert (own.task, own.rpc_layer, own.environment) == (Task("worker", 1), None, "")
    assert not hasattr(SimpleNamespace(), "task")


def test_a_resolver_must_say_the_cluster_and_the_master() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ClusterResolver()  # pyright: ignore


def test_accelerators_are_those_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [SimpleNamespace(platform=platform) for platform in ("gpu", "gpu", "cpu")]
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(local_devices=lambda: devices))  # pyright: ignore
    assert OfAUser().num_accelerators() == {"GPU": 2}
    assert OfAUser().num_accelerators("worker", 1) == {"GPU": 2}
    assert OfAUser().num_accelerators(task_id=0) == {}
    assert OfAUser().num_accelerators("ps", 1, config_proto=object()) == {}
    assert TFConfigClusterResolver().num_accelerators() == {"GPU": 2}
    devices[:2] = []
    assert OfAUser().num_accelerators() == {}


def test_union_has_the_jobs_of_all() -> None:
    assert merged(WORKERS, SERVERS) == {"worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]}


def test_union_appends_lists_in_order() -> None:
    assert merged({"worker": ["a:1"]}, WORKERS, {"worker": ["b:1"]}) == {"worker": ["a:1", "w0:1", "w1:1", "b:1"]}


def test_union_counts_a_job_described_twice_once() -> None:
    assert merged(WORKERS, WORKERS) == WORKERS.as_dict()


def test_union_merges_sparse_jobs_by_index() -> None:
    assert merged({"worker": {3: "d:1"}}, {"worker": {1: "b:1"}}) == {"worker": {1: "b:1", 3: "d:1"}}
    assert merged({"worker": ["a:1", "b:1"]}, {"worker": {2: "c:1"}}) == {"worker": ["a:1", "b:1", "c:1"]}
    assert merged({"worker": {1: "b:1"}}, {"worker": {1: "b:1", 3: "d:1"}}) == {"worker": {1: "b:1", 3: "d:1"}}


@pytest.mark.parametrize(
    "clusters",
    [
        ({"worker": {1: "a:1"}}, {"worker": {1: "b:1"}}),
        ({"worker": ["x:1", "a:1"]}, {"worker": {1: "b:1", 4: "c:1"}}),
    ],
)
def test_union_refuses_two_tasks_at_one_index(clusters: Any) -> None:
    with pytest.raises(ClusterSpecError, match=r'^cluster\["worker"\]\[1\] must be the same') as caught:
        merged(*clusters)
    assert "Received: ('a:1', 'b:1')" in str(caught.value)
    assert 'Correct example: {1: "a:1"}' in str(caught.value)


def test_union_refuses_what_no_cluster_may_be() -> None:
    with pytest.raises(ClusterSpecError, match="no two tasks may share"):
        merged({"worker": ["a:1"]}, {"worker": ["a:1", "b:1"]})
    with pytest.raises(ClusterSpecError, match="at most one chief"):
        merged({"chief": ["a:1"]}, {"chief": ["b:1"]})


def test_union_is_otherwise_its_first() -> None:
    first = SimpleClusterResolver(WORKERS, "m:1", "worker", 1, "cloud", {"GPU": 2}, "grpc")
    union = UnionResolver(first, SimpleClusterResolver(SERVERS, "x:1", "ps", 0))
    assert (union.task, union.environment, union.rpc_layer) == (Task("worker", 1), "cloud", "grpc")
    assert union.num_accelerators() == {"GPU": 2}
    assert union.master() == "grpc://m:1"
    assert union.master("ps", 1) == "grpc://p1:1"


def test_union_can_override_its_first() -> None:
    first = SimpleClusterResolver(WORKERS, "m:1", "worker", 1)
    union = UnionResolver(first, task_type="worker", task_id=0, rpc_layer="grpc")
    assert (union.task, union.rpc_layer) == (Task("worker", 0), "grpc")
    assert union.master() == "grpc://m:1"
    union.task_id, union.task_type, union.rpc_layer = None, None, None
    assert (union.task, union.rpc_layer) == (Task("worker", 1), None)


def test_union_overrides_the_accelerators_of_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}')
    read = TFConfigClusterResolver()
    union = UnionResolver(SimpleClusterResolver(read.cluster_spec(), num_accelerators={"GPU": 1}), read)
    assert union.cluster_spec() == read.cluster_spec()
    assert union.num_accelerators() == {"GPU": 1}


@pytest.mark.parametrize("arguments", [(), (None,), (SimpleClusterResolver(WORKERS), WORKERS)])
def test_union_is_of_resolvers(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ClusterSpecError, match=r"^resolvers"):
        UnionResolver(*arguments)
