"""The resolver that a program gets without asking: TF_CONFIG's, else that of its launcher."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.cluster_resolver import (
    ClusterResolver,
    MPIClusterResolver,
    SlurmClusterResolver,
    Task,
    TFConfigClusterResolver,
    TorchrunClusterResolver,
)
from lockstep.cluster_resolver._launchers import default_resolver, launcher_resolver
from lockstep.errors import ClusterSpecError

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_NTASKS": "4",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_PROCID": "1",
}
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}
RANKS = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
# As torchrun starts them on each of two nodes.
TORCHRUN = {**RANKS, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_PORT": "tcp://10.0.0.1:443", "HOSTNAME": "web-1"}


def resolver_in(monkeypatch: pytest.MonkeyPatch, *variables: dict[str, str]) -> ClusterResolver:
    for each in variables:
        for name, value in each.items():
            monkeypatch.setenv(name, value)
    return default_resolver()


@pytest.mark.parametrize(
    ("variables", "kind", "size"),
    [
        ([SLURM, STEP], SlurmClusterResolver, 4),
        ([SLURM], SlurmClusterResolver, 4),
        ([SLURM, STEP, {"ENVIRONMENT": "BATCH"}], SlurmClusterResolver, 4),
        ([SLURM, {"ENVIRONMENT": "BATCH"}], SlurmClusterResolver, 4),  # A container that passes on few variables.
        ([RANKS], TorchrunClusterResolver, 4),
        ([TORCHRUN], TorchrunClusterResolver, 4),
        ([OPEN_MPI], MPIClusterResolver, 4),
        ([KUBERNETES, RANKS, {"JOB_COMPLETION_INDEX": "1"}], TorchrunClusterResolver, 4),
    ],
)
def test_the_launcher_says_who_takes_part(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: list[dict[str, str]],
    kind: type[ClusterResolver],
    size: int,
) -> None:
    found = resolver_in(monkeypatch, *variables)
    assert type(found) is kind
    assert found.cluster_spec().num_tasks("worker") == size
    assert found.task == Task("worker", 1)
    (line,) = caplog.messages
    assert line.startswith(f"TF_CONFIG is not set: {kind.__name__} takes the cluster from ")
    assert line.endswith(": process 1 of 4.")


@pytest.mark.parametrize("variables", [SLURM | STEP, TORCHRUN, OPEN_MPI, {"JOB_COMPLETION_INDEX": "1"}])
@pytest.mark.parametrize(
    ("config", "tasks"),
    [({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}, 2), ({}, 0)],
)
def test_tf_config_wins(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], config: dict[str, object], tasks: int
) -> None:
    found = resolver_in(monkeypatch, variables, {"TF_CONFIG": json.dumps(config)})
    assert type(found) is TFConfigClusterResolver
    assert len(found.cluster_spec().tasks) == tasks
    assert launcher_resolver() is None


ONE = {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"TF_CONFIG": " "},
        {name: value for name, value in SLURM.items() if name != "SLURM_PROCID"},  # The shell of salloc.
        # A shell of salloc that is a step itself: the job has four tasks, the step has one.
        SLURM | ONE | {"SLURM_NTASKS": "4", "SLURM_PTY_PORT": "40000", "SLURM_STEP_ID": "4294967290"},
        ONE,
        {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"WORLD_SIZE": "1"},
        {"RANK": "3"},
        TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        KUBERNETES,
        KUBERNETES | ONE | {"RANK": "0", "WORLD_SIZE": "1", "JOB_COMPLETION_INDEX": "0"},
    ],
)
def test_one_process_trains_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variables: dict[str, str]
) -> None:
    found = resolver_in(monkeypatch, variables)
    assert not found.cluster_spec() and found.task is None
    assert caplog.messages == []


def test_a_batch_script_trains_alone_and_is_told_of_srun(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert not resolver_in(monkeypatch, SLURM, {"SLURM_PROCID": "0", "ENVIRONMENT": "BATCH"}).cluster_spec()
    assert "This process trains alone, though SLURM_NTASKS is 4" in caplog.text and "srun" in caplog.text


def test_a_batch_script_may_start_ranks_by_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = {"SLURM_PROCID": "0", "ENVIRONMENT": "BATCH"}
    assert type(resolver_in(monkeypatch, SLURM, batch, TORCHRUN)) is TorchrunClusterResolver
    assert "srun" not in caplog.text


TWO_AGENTS = STEP | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ([SLURM, TWO_AGENTS, TORCHRUN], TorchrunClusterResolver),  # One torchrun on each node.
        ([SLURM, STEP, RANKS], TorchrunClusterResolver),  # Ranks set by hand, as Slurm has them.
        ([SLURM, TWO_AGENTS, RANKS, {"LOCAL_WORLD_SIZE": "2"}], TorchrunClusterResolver),
        ([SLURM, STEP, {"WORLD_SIZE": "4"}], SlurmClusterResolver),  # The rank is left to the program.
        ([SLURM, TWO_AGENTS, OPEN_MPI], MPIClusterResolver),  # One daemon of mpirun on each node.
        ([SLURM, STEP, OPEN_MPI], MPIClusterResolver),
        ([OPEN_MPI, RANKS], TorchrunClusterResolver),
        ([ONE, TORCHRUN], TorchrunClusterResolver),
        ([ONE, OPEN_MPI], MPIClusterResolver),
    ],
)
def test_of_nested_launchers_the_innermost_counts(
    monkeypatch: pytest.MonkeyPatch, variables: list[dict[str, str]], kind: type[ClusterResolver]
) -> None:
    found = resolver_in(monkeypatch, *variables)
    assert type(found) is kind
    assert found.task == Task("worker", 1)


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        # A torchrun of its own in each task of srun: as many models as tasks.
        ([SLURM, TWO_AGENTS, TORCHRUN, {"GROUP_WORLD_SIZE": "1", "WORLD_SIZE": "2"}], ["Slurm", "WORLD_SIZE=2"]),
        ([SLURM, STEP, RANKS, {"RANK": "0"}], ["SLURM_PROCID=1", "RANK=0"]),
        ([SLURM, STEP, RANKS, {"RANK": "0", "WORLD_SIZE": "1"}], ["process 1 of 4", "process 0 of 1"]),
        ([SLURM, STEP, OPEN_MPI, {"OMPI_COMM_WORLD_SIZE": "2"}], ["Open MPI", "process 1 of 2"]),
        ([OPEN_MPI, RANKS, {"WORLD_SIZE": "8"}], ["WORLD_SIZE=8", "OMPI_COMM_WORLD_SIZE=4"]),
    ],
)
def test_launchers_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: list[dict[str, str]], seen: list[str]
) -> None:
    with pytest.raises(ClusterSpecError, match="must describe one cluster") as error:
        resolver_in(monkeypatch, *variables)
    for text in (*seen, "pass cluster_resolver=", "TF_CONFIG='{}'"):
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("variables", "rule"),
    [
        ({"WORLD_SIZE": "4"}, "RANK must be set"),
        (RANKS | {"MASTER_ADDR": ""}, "MASTER_ADDR must be set"),
        (SLURM | STEP | {"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "NODELIST must be set"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "coordinator_address must be given"),
    ],
)
def test_a_launcher_that_does_not_tell_enough_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rule: str
) -> None:
    with pytest.raises(ClusterSpecError, match=rule) as error:
        resolver_in(monkeypatch, variables)
    assert "TF_CONFIG is not set; seen: " in str(error.value) and "TF_CONFIG='{}'" in str(error.value)


@pytest.mark.parametrize("index", ["0", "1"])
def test_a_pod_of_an_indexed_job_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    with pytest.raises(ClusterSpecError, match="JOB_COMPLETION_INDEX says that this pod is one of an indexed") as error:
        resolver_in(monkeypatch, KUBERNETES, {"JOB_COMPLETION_INDEX": index})
    for text in ("TF_CONFIG='{}'", "KubernetesClusterResolver", "WORLD_SIZE"):
        assert text in str(error.value)


NUMBERS = st.none() | st.sampled_from(["0", "1", "2", "4", "x", ""])
NAMES = sorted({*SLURM, *STEP, *TORCHRUN, *OPEN_MPI, "JOB_COMPLETION_INDEX"} - {"MASTER_ADDR", "SLURM_JOB_NODELIST"})


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({name: NUMBERS for name in NAMES}))
def test_any_variables_give_a_place_of_this_process_or_an_error(values: dict[str, str | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
        patch.setenv("MASTER_ADDR", "n1")
        patch.setenv("SLURM_JOB_NODELIST", "n1")
        logging.getLogger("lockstep").disabled = True
        try:
            found = default_resolver()
        except ClusterSpecError:
            return
        finally:
            logging.getLogger("lockstep").disabled = False
    cluster = found.cluster_spec()
    assert (not cluster and found.task is None) or found.task in cluster.tasks
