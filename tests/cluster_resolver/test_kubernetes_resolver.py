from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lockstep.cluster_resolver import KubernetesClusterResolver, Task
from lockstep.errors import ClusterSpecError


def pod(name: str, ip: str | None = None, phase: str = "Running", host_ip: str = "10.0.0.1") -> SimpleNamespace:
    status = SimpleNamespace(phase=phase, pod_ip=ip, host_ip=host_ip)
    return SimpleNamespace(metadata=SimpleNamespace(name=name), status=status)


class Client:
    def __init__(self, **pods: list[SimpleNamespace]) -> None:
        self.pods = pods

    def list_pod_for_all_namespaces(self, label_selector: str) -> SimpleNamespace:
        return SimpleNamespace(items=self.pods.get(label_selector.replace("job-name=", ""), []))


def test_pods_are_sorted_by_name_with_numbers_as_numbers() -> None:
    client = Client(tensorflow=[pod("w-10", "10.1.0.3"), pod("w-9", "10.1.0.2"), pod("w-1", "10.1.0.1")])
    found = KubernetesClusterResolver(override_client=client)
    assert found.cluster_spec().as_dict() == {"worker": ["10.1.0.1:8470", "10.1.0.2:8470", "10.1.0.3:8470"]}


def test_pods_are_ordered_as_tensorflow_does() -> None:
    names = ["tensorflow-abc123", "tensorflow-def456", "tensorflow-999999"]
    client = Client(tensorflow=[pod(name, f"10.1.0.{index}") for index, name in enumerate(names)])
    found = KubernetesClusterResolver(override_client=client).cluster_spec().job_tasks("worker")
    assert found == ["10.1.0.2:8470", "10.1.0.0:8470", "10.1.0.1:8470"]


def test_jobs_have_selectors_and_the_task_is_set() -> None:
    client = Client(a=[pod("a", "10.1.0.1")], b=[pod("b", "::7")], ps=[pod("p", "10.1.0.3")])
    labels = {"worker": ["job-name=b", "job-name=a"], "ps": ("job-name=ps",)}
    found = KubernetesClusterResolver(labels, tf_server_port=1, override_client=client)
    assert found.cluster_spec().as_dict() == {"worker": ["[::7]:1", "10.1.0.1:1"], "ps": ["10.1.0.3:1"]}
    assert (found.task, found.master()) == (None, "")
    found.task_type, found.task_id = "worker", 1
    assert (found.task, found.master()) == (Task("worker", 1), "grpc://10.1.0.1:1")
    assert found.master("ps", 0, "http") == "http://10.1.0.3:1"


def test_the_address_of_the_host_stands_in() -> None:
    client = Client(tensorflow=[pod("w", None, host_ip="10.9.9.9")])
    found = KubernetesClusterResolver(override_client=client, rpc_layer=None)
    assert found.cluster_spec().as_dict() == {"worker": ["10.9.9.9:8470"]}


def test_the_cluster_is_asked_for_anew() -> None:
    client = Client(tensorflow=[pod("w", "10.1.0.1")])
    found = KubernetesClusterResolver(override_client=client)
    client.pods["tensorflow"].append(pod("x", "10.1.0.2"))
    assert found.cluster_spec().num_tasks("worker") == 2


@pytest.mark.parametrize(
    ("pods", "field", "received"),
    [
        ([], "label selector", "'job-name=tensorflow'"),
        ([pod("w-1", "10.1.0.1", "Pending")], "phase of pod w-1", "'Pending'"),
        ([pod("w-1"), pod("w-2")], r'cluster\["worker"\]\[1\]', "'10.0.0.1:8470'"),
    ],
)
def test_pods_that_make_no_cluster_are_named(pods: list[SimpleNamespace], field: str, received: str) -> None:
    found = KubernetesClusterResolver(override_client=Client(tensorflow=pods))
    with pytest.raises(ClusterSpecError, match=f"^{field} must") as caught:
        found.cluster_spec()
    assert f"Received: {received}" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"job_to_label_mapping": ["x"]}, "job_to_label_mapping"),
        ({"job_to_label_mapping": {"wroker": ["x"]}}, "job_to_label_mapping"),
        ({"job_to_label_mapping": {"worker": "x"}}, r'job_to_label_mapping\["worker"\]'),
        ({"job_to_label_mapping": {"worker": []}}, r'job_to_label_mapping\["worker"\]'),
        ({"job_to_label_mapping": {"worker": [1]}}, r'job_to_label_mapping\["worker"\]'),
        ({"tf_server_port": 0}, "tf_server_port"),
        ({"rpc_layer": 1}, "rpc_layer"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ClusterSpecError, match=rf"^{field} must .*\nReceived: .*\nCorrect example: ."):
        KubernetesClusterResolver(**arguments, override_client=Client())


def test_the_package_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(ClusterSpecError, match=r"pip install kubernetes.*TF_CONFIG"):
        KubernetesClusterResolver()


def fake_package(monkeypatch: pytest.MonkeyPatch, inside: bool) -> list[str]:
    loaded: list[str] = []

    def load_incluster_config() -> None:
        if not inside:
            raise config.ConfigException
        loaded.append("in cluster")

    package, client, config = (ModuleType(name) for name in ("kubernetes", "kubernetes.client", "kubernetes.config"))
    config.ConfigException = type("ConfigException", (Exception,), {})  # pyright: ignore
    config.load_incluster_config = load_incluster_config  # pyright: ignore
    config.load_kube_config = lambda: loaded.append("kube config")  # pyright: ignore
    client.CoreV1Api = lambda: Client(tensorflow=[pod("w", "10.1.0.1")])  # pyright: ignore
    for module in (package, client, config):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return loaded


@pytest.mark.parametrize(("inside", "expected"), [(True, "in cluster"), (False, "kube config")])
def test_the_package_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch, inside: bool, expected: str) -> None:
    loaded = fake_package(monkeypatch, inside)
    assert KubernetesClusterResolver().cluster_spec().num_tasks("worker") == 1
    assert loaded == [expected]
