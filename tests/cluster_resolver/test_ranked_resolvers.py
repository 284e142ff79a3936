from __future__ import annotations

from typing import Any

import pytest

from lockstep.cluster_resolver import ClusterResolver, MPIClusterResolver, Task, TorchrunClusterResolver
from lockstep.cluster_resolver._roles import known_address, training_tasks
from lockstep.errors import ClusterSpecError

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "host0", "MASTER_PORT": "29500"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911",
}


def set_all(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def coordinator(resolver: ClusterResolver) -> str:
    return resolver.cluster_spec().task_address("worker", 0)


def test_ranks_are_workers_and_only_the_first_has_a_known_address(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, TORCHRUN)
    found = TorchrunClusterResolver()
    spec = found.cluster_spec()
    assert found.task == Task("worker", 2)
    assert [known_address(spec, task) for task in training_tasks(spec)] == ["host0:29500", None, None]
    assert spec.task_address("worker", 2) == "worker-2.address-unknown.invalid:1"
    assert found.master() == "grpc://host0:29500"
    assert found.master(rpc_layer="") == "host0:29500"


def test_all_ranks_see_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, TORCHRUN)
    specs = set()
    for rank in "012":
        monkeypatch.setenv("RANK", rank)
        specs.add(TorchrunClusterResolver().cluster_spec())
    assert len(specs) == 1


@pytest.mark.parametrize(
    ("changes", "arguments", "address"),
    [
        ({}, {"port": 7}, "host0:7"),
        ({"MASTER_PORT": ""}, {"port": 7}, "host0:7"),
        ({"MASTER_ADDR": "::1"}, {}, "[::1]:29500"),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, {}, "host0:29501"),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": "65535"}, {}, "host0:65534"),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, {"port": 7}, "host0:7"),
        ({"TORCHELASTIC_USE_AGENT_STORE": "False"}, {}, "host0:29500"),
    ],
)
def test_where_torchrun_coordinates(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], arguments: dict[str, Any], address: str
) -> None:
    set_all(monkeypatch, {**TORCHRUN, **changes})
    assert coordinator(TorchrunClusterResolver(**arguments)) == address


@pytest.mark.parametrize(
    ("changes", "arguments", "address"),
    [
        ({}, {}, "10.96.0.1:8888"),
        ({}, {"port": 7}, "10.96.0.1:7"),
        ({}, {"coordinator_address": "host9:9"}, "host9:9"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, {}, "localhost:8888"),
        ({"OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.96.0.1:34911"}, {}, "10.96.0.1:8888"),
        ({"OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.96.0.1:34911;tcp6://[::1]:2"}, {}, "10.96.0.1:8888"),
        ({"OMPI_MCA_orte_hnp_uri": "1.0;tcp6://[fe80::b9b:1,2620::2]:43370"}, {}, "[fe80::b9b:1]:8888"),
        ({"OMPI_MCA_orte_hnp_uri": "1.0;tcp6://[2620::2]:43370"}, {}, "[2620::2]:8888"),
    ],
)
def test_where_open_mpi_coordinates(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], arguments: dict[str, Any], address: str
) -> None:
    set_all(monkeypatch, {**OPEN_MPI, **changes})
    found = MPIClusterResolver(**arguments)
    assert coordinator(found) == address
    assert (found.task, found.cluster_spec().num_tasks("worker")) == (Task("worker", 1), 4)


@pytest.mark.parametrize("name", list(TORCHRUN))
def test_a_missing_variable_of_torchrun_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    set_all(monkeypatch, {**TORCHRUN, name: ""})
    with pytest.raises(
        ClusterSpecError, match=rf"^{name} must be set.*\nReceived: nothing .*\nCorrect example: {name}="
    ):
        TorchrunClusterResolver()


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"])
def test_a_missing_variable_of_open_mpi_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    set_all(monkeypatch, {**OPEN_MPI, name: ""})
    with pytest.raises(ClusterSpecError, match=f"^{name} must be set"):
        MPIClusterResolver()


@pytest.mark.parametrize(
    ("changes", "arguments", "field"),
    [
        ({"RANK": "3"}, {}, "RANK"),
        ({"RANK": "-1"}, {}, "RANK"),
        ({"RANK": "1.0"}, {}, "RANK"),
        ({"WORLD_SIZE": "0"}, {}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "999999999"}, {}, "WORLD_SIZE"),
        ({"MASTER_PORT": "0"}, {}, "MASTER_PORT"),
        ({"MASTER_PORT": "70000"}, {}, "MASTER_PORT"),
        ({"MASTER_PORT": "http"}, {}, "MASTER_PORT"),
        ({"MASTER_ADDR": "ho st"}, {}, "MASTER_ADDR with its port"),
        ({"MASTER_ADDR": "tcp://host"}, {}, "MASTER_ADDR with its port"),
        ({}, {"port": 0}, "port"),
        ({}, {"rpc_layer": 1}, "rpc_layer"),
    ],
)
def test_what_torchrun_cannot_mean_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], arguments: dict[str, Any], field: str
) -> None:
    set_all(monkeypatch, {**TORCHRUN, **changes})
    with pytest.raises(ClusterSpecError, match=f"^{field} must"):
        TorchrunClusterResolver(**arguments)


@pytest.mark.parametrize(
    ("changes", "arguments", "field"),
    [
        ({"OMPI_COMM_WORLD_RANK": "4"}, {}, "OMPI_COMM_WORLD_RANK"),
        ({"OMPI_COMM_WORLD_SIZE": "x"}, {}, "OMPI_COMM_WORLD_SIZE"),
        ({"OMPI_MCA_orte_hnp_uri": ""}, {}, "coordinator_address"),
        ({"OMPI_MCA_orte_hnp_uri": "nonsense"}, {}, "coordinator_address"),
        ({}, {"coordinator_address": "host"}, "coordinator_address"),
        ({}, {"port": 65536}, "port"),
    ],
)
def test_what_open_mpi_cannot_mean_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], arguments: dict[str, Any], field: str
) -> None:
    set_all(monkeypatch, {**OPEN_MPI, **changes})
    with pytest.raises(ClusterSpecError, match=f"^{field} must"):
        MPIClusterResolver(**arguments)
