from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from lockstep.cluster_resolver import SlurmClusterResolver, Task
from lockstep.cluster_resolver._field import MISSING, Field
from lockstep.cluster_resolver._slurm import expand_counts, expand_hosts
from lockstep.errors import ClusterSpecError

STEP = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_STEP_NODELIST": "t02n13,t02n[41,43]",
}
UNEVEN = {**STEP, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}
MIXED = {"ps": ["t02n13:8888"], "worker": ["t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"]}


@pytest.fixture(autouse=True)
def no_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", missing)


def resolver(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], **arguments: Any) -> SlurmClusterResolver:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return SlurmClusterResolver(**arguments)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1,3]", ["n1", "n3"]),
        ("n[1-2],m5,o[3-4,6,7-9]", ["n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"]),
        ("n[0001-0003],m5,o[009-011]", ["n0001", "n0002", "n0003", "m5", "o009", "o010", "o011"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("rack[1-2]n[01-02]-ib", ["rack1n01-ib", "rack1n02-ib", "rack2n01-ib", "rack2n02-ib"]),
        ("n[2,10]", ["n2", "n10"]),
        ("[1-2]", ["1", "2"]),
    ],
)
def test_hostlists_are_expanded_in_order(text: str, hosts: list[str]) -> None:
    assert expand_hosts(Field("NODES", text)) == hosts


@pytest.mark.parametrize(
    "text",
    [
        MISSING,
        "n[1-2",
        "n1-2]",
        "n[]",
        "n[a-b]",
        "n[3-1]",
        "n[1--2]",
        "n[1-2-3]",
        "n[1,]",
        "n[[1]]",
        ",n",
        "n,",
        "n,,m",
        "n 1",
        "n\n",
        "n[1-999999999]",
        "n[1-999999999,1-999999999]",
        "n[1-1000][1-1000]",
        "n[1-60000],m[1-60000]",
        "n[1-9999999999]",
    ],
)
def test_what_is_no_hostlist_is_refused(text: object) -> None:
    with pytest.raises(ClusterSpecError, match=r"^NODES .*\nReceived: .*\nCorrect example: NODES="):
        expand_hosts(Field("NODES", text))


@pytest.mark.parametrize(
    ("text", "counts"), [("2", [2]), ("2,1,3", [2, 1, 3]), ("3(x2),2,11(x4)", [3, 3, 2, 11, 11, 11, 11])]
)
def test_counts_are_expanded_in_order(text: str, counts: list[int]) -> None:
    assert expand_counts(Field("COUNTS", text)) == counts


@pytest.mark.parametrize("text", [MISSING, "a", "2(x)", "2(3)", "2,", "-1", "2 (x3)", "1(x999999)", "1.5"])
def test_what_is_no_list_of_counts_is_refused(text: object) -> None:
    with pytest.raises(ClusterSpecError, match=r"^COUNTS .*\nReceived: .*\nCorrect example: COUNTS="):
        expand_counts(Field("COUNTS", text))


def test_a_step_is_a_cluster_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, STEP)
    assert found.cluster_spec().as_dict() == {"worker": ["t02n13:8888", "t02n41:8888", "t02n43:8888"]}
    assert found.task == Task("worker", 0)
    assert found.get_task_info() == ("worker", 0)
    assert found.master() == "grpc://t02n13:8888"
    assert found.master("worker", 2, rpc_layer="ab") == "ab://t02n43:8888"
    assert found.num_accelerators() == {}
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_job_stands_in_for_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NTASKS": "2",
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": "1",
    }
    assert resolver(monkeypatch, names).master() == "grpc://n2:8888"


def test_tasks_of_a_node_have_consecutive_ports_and_jobs_alphabetical_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, UNEVEN, jobs={"worker": 4, "ps": 1})
    assert found.cluster_spec().as_dict() == MIXED
    assert found.task == Task("worker", 0)


def test_ranks_follow_the_node_list_and_not_the_alphabet(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**STEP, "SLURM_STEP_NODELIST": "n[2,9-10]", "SLURMD_NODENAME": "n10", "SLURM_PROCID": "2"}
    found = resolver(monkeypatch, variables, port_base=50_000)
    assert found.cluster_spec().job_tasks("worker") == ["n2:50000", "n9:50000", "n10:50000"]


def test_tasks_per_node_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    del_counts = {name: value for name, value in STEP.items() if name != "SLURM_STEP_TASKS_PER_NODE"}
    even = resolver(monkeypatch, {**del_counts, "SLURM_STEP_NUM_TASKS": "6"}, tasks_per_node=2)
    assert even.cluster_spec().num_tasks("worker") == 6
    uneven = SlurmClusterResolver({"worker": 3}, tasks_per_node={"b": 2, "a": 1})
    assert uneven.cluster_spec().job_tasks("worker") == ["b:8888", "b:8889", "a:8888"]


def test_the_task_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, UNEVEN, jobs={"worker": 4, "ps": 1})
    found.task_type, found.task_id, found.rpc_layer = "ps", 0, None
    assert found.master() == "t02n13:8888"


@pytest.mark.parametrize("name", list(STEP))
def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ClusterSpecError, match=f"^{name} must be set") as caught:
        resolver(monkeypatch, {other: value for other, value in STEP.items() if other != name})
    assert "Received: nothing" in str(caught.value)
    assert f"Correct example: {name}=" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "arguments", "field"),
    [
        ({"SLURM_PROCID": "3"}, {}, "SLURM_PROCID"),
        ({"SLURM_PROCID": "-1"}, {}, "SLURM_PROCID"),
        ({"SLURM_PROCID": "x"}, {}, "SLURM_PROCID"),
        ({"SLURM_PROCID": "1" * 5000}, {}, "SLURM_PROCID"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, {}, "SLURM_STEP_NUM_TASKS"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, {}, "SLURM_STEP_TASKS_PER_NODE"),
        ({"SLURM_STEP_NODELIST": "n["}, {}, "SLURM_STEP_NODELIST"),
        ({"SLURMD_NODENAME": "t02n43"}, {}, "SLURMD_NODENAME"),
        ({}, {"jobs": {"worker": 2}}, "jobs"),
        ({}, {"jobs": {"wroker": 3}}, "jobs"),
        ({}, {"jobs": {"worker": "3"}}, r'jobs\["worker"\]'),
        ({}, {"jobs": ["worker"]}, "jobs"),
        ({}, {"port_base": 0}, "port_base"),
        ({}, {"port_base": "8888"}, "port_base"),
        ({}, {"port_base": 65535, "tasks_per_node": 2, "jobs": {"worker": 6}}, r"port_base \+ tasks per node - 1"),
        ({}, {"tasks_per_node": "2"}, "tasks_per_node"),
        ({}, {"tasks_per_node": 0}, "SLURM_PROCID"),
        ({}, {"tasks_per_node": {}}, "SLURM_PROCID"),
        ({}, {"tasks_per_node": {"a": -1}}, r'tasks_per_node\["a"\]'),
        ({}, {"gpus_per_node": -1}, "gpus_per_node"),
        ({}, {"gpus_per_task": True}, "gpus_per_task"),
        ({}, {"gpus_per_node": 1, "gpus_per_task": 2}, "gpus_per_task"),
        ({}, {"rpc_layer": 1}, "rpc_layer"),
    ],
)
def test_what_does_not_add_up_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(ClusterSpecError, match=rf"^{field} must .*\nReceived: .*\nCorrect example: ."):
        resolver(monkeypatch, {**STEP, **changes}, **arguments)


@pytest.mark.parametrize(
    ("visible", "arguments", "mine", "count"),
    [
        ("", {"gpus_per_node": 4, "gpus_per_task": 2}, "2,3", 2),
        ("4,5,6,7", {}, "6,7", 2),
        ("4,5,6,7", {"gpus_per_task": 1}, "5", 1),
        ("4,5,6,7", {"gpus_per_node": 2}, "5", 1),
        ("4", {}, "4", 1),
        ("GPU-a,GPU-b", {}, "GPU-b", 1),
        ("0,1", {"gpus_per_task": 0}, "", 0),
        ("NoDevFiles", {}, "NoDevFiles", 0),
        ("0,1", {"auto_set_gpu": False}, "0,1", 1),
    ],
)
def test_gpus_of_a_node_are_dealt_out(
    monkeypatch: pytest.MonkeyPatch, visible: str, arguments: dict[str, Any], mine: str, count: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    # The second resolver of a process, or one in its child, finds them dealt out already.
    for found in (resolver(monkeypatch, UNEVEN, **arguments), SlurmClusterResolver(**arguments)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == mine
        assert found.num_accelerators() == ({"GPU": count} if count else {})


def test_gpus_that_are_given_need_not_be_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolver(monkeypatch, UNEVEN, gpus_per_node=2, gpus_per_task=1).num_accelerators() == {"GPU": 1}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_gpus_that_slurm_dealt_out_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, {**UNEVEN, "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_PER_TASK": "2"})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert found.num_accelerators() == {"GPU": 2}


def test_gpus_are_counted_by_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "GPU 0: A (UUID: x)\n  MIG 1g.5gb Device 0: (UUID: y)\nGPU 1: A (UUID: z)\n"
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, listing))  # pyright: ignore
    assert resolver(monkeypatch, UNEVEN).num_accelerators() == {"GPU": 1}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
