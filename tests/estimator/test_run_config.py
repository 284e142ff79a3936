from __future__ import annotations

import copy
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep._engine.runtime import local_devices
from lockstep.cluster_resolver import ClusterSpec, SimpleClusterResolver
from lockstep.errors import ArgumentError, ClusterSpecError, UnsupportedError
from lockstep.estimator._run_config import REPLACEABLE, DistributeConfig, RunConfig
from lockstep.estimator._session_config import ConfigProto, GPUOptions

CLUSTER = {
    "chief": ["host0:9"],
    "ps": ["host1:1", "host2:2"],
    "worker": ["host3:3", "host4:4", "host5:5"],
}
ROLE = (
    *("is_chief", "num_worker_replicas", "num_ps_replicas", "global_id_in_cluster", "master", "evaluation_master"),
    *("task_type", "task_id"),
)


TRIO = {"chief": ["chief0:1000"], "evaluator": ["evaluator0:1000"], "worker": ["worker0:1000"]}


def in_task(monkeypatch: pytest.MonkeyPatch, cluster: object, job: Any = None, index: Any = None, **more: Any) -> None:
    task = {k: v for k, v in (("type", job), ("index", index)) if v is not None}
    values = {**({} if cluster is None else {"cluster": cluster}), **({"task": task} if task else {}), **more}
    monkeypatch.setenv("TF_CONFIG", json.dumps(values))


def role(config: RunConfig) -> tuple[Any, ...]:
    return tuple(getattr(config, name) for name in ROLE)


def cluster(**sizes: int) -> dict[str, list[str]]:
    return {job: [f"{job}{i}:1000" for i in range(size)] for job, size in sizes.items()}


@pytest.fixture
def strategy() -> lockstep.distribute.Strategy:
    return lockstep.distribute.OneDeviceStrategy("cpu:0")


def test_defaults() -> None:
    config = RunConfig()
    assert {name: getattr(config, name) for name in REPLACEABLE} == {
        "model_dir": None,
        "tf_random_seed": None,
        "save_summary_steps": 100,
        "save_checkpoints_steps": None,
        "save_checkpoints_secs": 600,
        "session_config": None,
        "keep_checkpoint_max": 5,
        "keep_checkpoint_every_n_hours": 10000,
        "log_step_count_steps": 100,
        "train_distribute": None,
        "device_fn": None,
        "protocol": None,
        "eval_distribute": None,
        "experimental_distribute": None,
        "experimental_max_worker_delay_secs": None,
        "session_creation_timeout_secs": 7200,
        "checkpoint_save_graph_def": True,
    }


def test_shown_as_tensorflow_logs_it() -> None:
    text = str(RunConfig("somewhere", train_distribute=None))
    assert text.startswith("{'_model_dir': 'somewhere', '_tf_random_seed': None, '_save_summary_steps': 100, ")
    assert "'_cluster_spec': ClusterSpec({}), '_task_type': 'worker', '_task_id': 0" in text
    assert repr(RunConfig()).startswith("RunConfig({")


# The role.


@pytest.mark.parametrize("text", [None, "", "{}", '{"cluster": {}}', '{"task": {"type": "worker", "index": 0}}'])
def test_a_process_alone(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    assert role(RunConfig()) == (True, 1, 0, 0, "", "", "worker", 0)
    assert RunConfig().cluster_spec == ClusterSpec({})
    assert RunConfig().service is None


@pytest.mark.parametrize(
    ("jobs", "job", "index", "expected"),
    [
        (CLUSTER, "chief", 0, (True, 4, 2, 0, "grpc://host0:9", "", "chief", 0)),
        (CLUSTER, "worker", 0, (False, 4, 2, 1, "grpc://host3:3", "", "worker", 0)),
        (CLUSTER, "worker", 2, (False, 4, 2, 3, "grpc://host5:5", "", "worker", 2)),
        (CLUSTER, "worker", "1", (False, 4, 2, 2, "grpc://host4:4", "", "worker", 1)),
        (CLUSTER, "ps", 0, (False, 4, 2, 4, "grpc://host1:1", "", "ps", 0)),
        (CLUSTER, "ps", 1, (False, 4, 2, 5, "grpc://host2:2", "", "ps", 1)),
        (CLUSTER, "evaluator", 0, (False, 0, 0, None, "", "", "evaluator", 0)),
        (CLUSTER, "evaluator", 12, (False, 0, 0, None, "", "", "evaluator", 12)),
        (cluster(chief=1), "chief", 0, (True, 1, 0, 0, "", "", "chief", 0)),
        (
            cluster(chief=1, evaluator=1, worker=1),
            "worker",
            0,
            (False, 2, 0, 2, "grpc://worker0:1000", "", "worker", 0),
        ),
        (cluster(master=1), "master", 0, (True, 1, 0, 0, "", "", "master", 0)),
        (cluster(master=1, worker=2), "master", 0, (True, 3, 0, 0, "grpc://master0:1000", "", "master", 0)),
        (cluster(worker=2, master=1, ps=1), "worker", 1, (False, 3, 1, 2, "grpc://worker1:1000", "", "worker", 1)),
        (cluster(worker=2, master=1, ps=1), "ps", 0, (False, 3, 1, 3, "grpc://ps0:1000", "", "ps", 0)),
    ],
)
def test_roles(monkeypatch: pytest.MonkeyPatch, jobs: Any, job: str, index: Any, expected: tuple[Any, ...]) -> None:
    in_task(monkeypatch, jobs, job, index)
    config = RunConfig()
    assert role(config) == expected
    assert config.cluster_spec == ClusterSpec({} if job == "evaluator" else jobs)


@pytest.mark.parametrize(
    ("jobs", "job", "index", "rule"),
    [
        (cluster(worker=2), "worker", 0, 'must have one "chief"'),
        (cluster(worker=2, ps=1), "evaluator", 0, 'must have one "chief"'),
        (cluster(chief=2, worker=1), "chief", 0, "must have one task"),
        (cluster(chief=1, master=1), "chief", 0, 'must not have both "chief" and "master"'),
        (cluster(master=1, worker=1), "evaluator", 0, 'must not be "evaluator"'),
        (CLUSTER, None, 0, r'TF_CONFIG\["task"\]\["type"\].*\n.*missing'),
        (CLUSTER, "worker", None, r'TF_CONFIG\["task"\]\["index"\].*\n.*missing'),
        (CLUSTER, "nonsense", 0, "must name one of the jobs"),
        (cluster(chief=1, ps=1), "worker", 0, "must be one of the jobs of the cluster"),
        (CLUSTER, "worker", -1, "must be an integer"),
        (CLUSTER, "worker", 3, "3 tasks, index 0 to 2"),
        (CLUSTER, "worker", "3", "3 tasks, index 0 to 2"),
        (CLUSTER, "worker", "first", "must be an integer"),
        (CLUSTER, "worker", 1.0, "must be an integer"),
        (CLUSTER, "worker", True, "must be an integer"),
        (CLUSTER, "evaluator", -1, "must be an integer"),
        (None, "chief", 0, 'must be "worker"'),
        (None, "evaluator", 0, 'must be "worker"'),
        (None, "worker", 1, "must be 0"),
        (None, "worker", "x", "must be 0"),
        ({"worker": "host:1"}, "worker", 0, "must be a list of addresses"),
        ({"chief": ["host"]}, "chief", 0, "must have a port"),
        (7, "worker", 0, "must be an object"),
    ],
)
def test_a_wrong_place(monkeypatch: pytest.MonkeyPatch, jobs: Any, job: Any, index: Any, rule: str) -> None:
    in_task(monkeypatch, jobs, job, index)
    with pytest.raises(ClusterSpecError, match=rule):
        RunConfig()


@pytest.mark.parametrize("text", ["{", "[]", "7", "null", '{"task": 7}', '{"session_master": 7}', '{"model_dir": 7}'])
def test_a_malformed_tf_config(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ClusterSpecError, match="TF_CONFIG"):
        RunConfig()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda s: st.lists(s, max_size=2)))
def test_any_task_gives_a_role_or_an_error_that_names_it(value: Any) -> None:
    for task in ({"type": value, "index": 0}, {"type": "worker", "index": value}, value):
        os.environ["TF_CONFIG"] = json.dumps({"cluster": CLUSTER, "task": task})
        try:
            config = RunConfig()
        except ClusterSpecError as error:
            assert 'TF_CONFIG["task"]' in str(error)
        else:
            assert config.task_type == "worker" and 0 <= config.task_id < 3
        finally:
            del os.environ["TF_CONFIG"]


def test_masters_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"session_master": "one", "eval_session_master": "two"}
    in_task(monkeypatch, CLUSTER, "worker", 0, **named)
    assert (RunConfig().master, RunConfig().evaluation_master) == ("one", "")
    in_task(monkeypatch, CLUSTER, "evaluator", 0, **named)
    assert (RunConfig().master, RunConfig().evaluation_master) == ("", "two")
    in_task(monkeypatch, cluster(chief=1), "chief", 0, **named)
    assert (RunConfig().master, RunConfig().evaluation_master) == ("one", "")
    in_task(monkeypatch, None, **named)
    assert (RunConfig().master, RunConfig().evaluation_master) == ("one", "two")


def test_service(monkeypatch: pytest.MonkeyPatch) -> None:
    in_task(monkeypatch, CLUSTER, "worker", 0, service={"a": 1})
    assert RunConfig().service == {"a": 1}
    in_task(monkeypatch, None, service="a")
    with pytest.raises(ClusterSpecError, match="service"):
        RunConfig()


# With strategies.


@pytest.mark.parametrize(
    ("jobs", "job", "index", "expected"),
    [
        (cluster(worker=2), "worker", 0, (True, 2, 0, 0, "grpc://worker0:1000", "", "worker", 0)),
        (cluster(worker=2), "worker", 1, (False, 2, 0, 1, "grpc://worker1:1000", "", "worker", 1)),
        (cluster(worker=2, evaluator=1), "worker", 0, (True, 2, 0, 1, "grpc://worker0:1000", "", "worker", 0)),
        (cluster(worker=2), "evaluator", 0, (False, 0, 0, None, "", "", "evaluator", 0)),
        (cluster(worker=1), "worker", 0, (True, 1, 0, 0, "", "", "worker", 0)),
        (CLUSTER, "chief", 0, (True, 4, 2, 0, "grpc://host0:9", "", "chief", 0)),
        (CLUSTER, "worker", 0, (False, 4, 2, 1, "grpc://host3:3", "", "worker", 0)),
        (None, None, None, (True, 1, 0, 0, "", "", "worker", 0)),
    ],
)
def test_roles_under_a_strategy(
    monkeypatch: pytest.MonkeyPatch,
    strategy: lockstep.distribute.Strategy,
    jobs: Any,
    job: Any,
    index: Any,
    expected: tuple[Any, ...],
) -> None:
    in_task(monkeypatch, jobs, job, index)
    assert role(RunConfig(train_distribute=strategy)) == expected


def test_a_strategys_resolver_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = SimpleClusterResolver(ClusterSpec(cluster(worker=3)), task_type="worker", task_id=2)
    strategy = lockstep.distribute.Strategy(None, resolver)
    in_task(monkeypatch, None, service={"a": 1})
    config = RunConfig(train_distribute=strategy)
    assert role(config)[:4] == (False, 3, 0, 2)
    assert config.service == {"a": 1}


def test_evaluating_with_a_strategy_leaves_the_rules_as_they_are(
    monkeypatch: pytest.MonkeyPatch, strategy: lockstep.distribute.Strategy
) -> None:
    in_task(monkeypatch, cluster(worker=2), "worker", 0)
    with pytest.raises(ClusterSpecError, match="chief"):
        RunConfig(eval_distribute=strategy)


def test_replace_follows_a_strategy(monkeypatch: pytest.MonkeyPatch, strategy: lockstep.distribute.Strategy) -> None:
    in_task(monkeypatch, cluster(worker=2), "worker", 1)
    config = RunConfig(train_distribute=strategy)
    monkeypatch.delenv("TF_CONFIG")
    assert role(config.replace(model_dir="x")) == role(config)
    with pytest.raises(ClusterSpecError, match="chief"):
        config.replace(train_distribute=None)


def test_strategies_in_a_distribute_config(strategy: lockstep.distribute.Strategy) -> None:
    other = lockstep.distribute.OneDeviceStrategy("cpu:1")
    config = RunConfig(experimental_distribute=DistributeConfig(strategy, other))
    assert (config.train_distribute, config.eval_distribute) == (strategy, other)
    kept = config.replace(save_summary_steps=1)
    assert (kept.train_distribute, kept.eval_distribute) == (strategy, other)
    replaced = config.replace(experimental_distribute=DistributeConfig(other))
    assert (replaced.train_distribute, replaced.eval_distribute) == (other, None)
    with pytest.raises(ArgumentError, match="Received both"):
        config.replace(train_distribute=other)
    with pytest.raises(ArgumentError, match="Received both"):
        RunConfig(eval_distribute=other, experimental_distribute=DistributeConfig(None, strategy))
    with pytest.raises(UnsupportedError, match="remote_cluster"):
        RunConfig(experimental_distribute=DistributeConfig(strategy, remote_cluster={"worker": ["a:1"]}))


# What the program says.


@pytest.mark.parametrize(
    ("given", "steps", "secs"),
    [
        ({}, None, 600),
        ({"save_checkpoints_steps": 10}, 10, None),
        ({"save_checkpoints_steps": None}, None, None),
        ({"save_checkpoints_secs": 10}, None, 10),
        ({"save_checkpoints_secs": 0.5}, None, 0.5),
        ({"save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": 3, "save_checkpoints_secs": None}, 3, None),
        ({"save_checkpoints_steps": 0}, 0, None),
    ],
)
def test_cadence(given: dict[str, Any], steps: Any, secs: Any) -> None:
    config = RunConfig(**given)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


@pytest.mark.parametrize(
    ("given", "steps", "secs"),
    [
        ({"save_checkpoints_steps": 10}, 10, None),
        ({"save_checkpoints_secs": 10}, None, 10),
        ({"save_checkpoints_steps": None}, None, 600),
        ({"save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": 5, "save_checkpoints_secs": None}, 5, None),
        ({"model_dir": "x"}, None, 600),
    ],
)
def test_replaced_cadence(given: dict[str, Any], steps: Any, secs: Any) -> None:
    config = RunConfig().replace(**given)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


def test_replacing_steps_by_seconds_and_back() -> None:
    config = RunConfig(save_checkpoints_steps=5).replace(save_checkpoints_secs=7)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (None, 7)
    config = config.replace(save_checkpoints_steps=9)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (9, None)


def test_both_cadences_are_an_error() -> None:
    with pytest.raises(ArgumentError, match="by steps or by seconds"):
        RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=2)
    with pytest.raises(ArgumentError, match="by steps or by seconds"):
        RunConfig().replace(save_checkpoints_steps=1, save_checkpoints_secs=2)


VALUES: dict[str, Any] = {
    "model_dir": "x",
    "tf_random_seed": 7,
    "save_summary_steps": 0,
    "save_checkpoints_steps": 10,
    "save_checkpoints_secs": 5,
    "session_config": ConfigProto(allow_soft_placement=True),
    "keep_checkpoint_max": None,
    "keep_checkpoint_every_n_hours": 0.5,
    "log_step_count_steps": None,
    "protocol": "grpc",
    "experimental_max_worker_delay_secs": 0,
    "session_creation_timeout_secs": 1,
    "checkpoint_save_graph_def": False,
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_given_or_replaced(name: str) -> None:
    assert getattr(RunConfig(**{name: VALUES[name]}), name) == VALUES[name]
    first = RunConfig()
    assert getattr(first.replace(**{name: VALUES[name]}), name) == VALUES[name]
    assert getattr(first, name) == getattr(RunConfig(), name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_dir", ""),
        ("model_dir", 7),
        ("tf_random_seed", 1.0),
        ("tf_random_seed", True),
        ("save_summary_steps", -1),
        ("save_summary_steps", 0.5),
        ("save_checkpoints_steps", -1),
        ("save_checkpoints_secs", -1),
        ("save_checkpoints_secs", float("nan")),
        ("keep_checkpoint_max", -1),
        ("keep_checkpoint_every_n_hours", 0),
        ("log_step_count_steps", 0),
        ("log_step_count_steps", -1),
        ("train_distribute", "mirrored"),
        ("eval_distribute", 1),
        ("experimental_distribute", {}),
        ("experimental_max_worker_delay_secs", 1.5),
        ("session_creation_timeout_secs", 0),
        ("checkpoint_save_graph_def", 1),
    ],
)
def test_a_wrong_value(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"{name} must be .*Received: "):
        RunConfig(**{name: value})
    with pytest.raises(ArgumentError, match=rf"{name} must be .*Received: "):
        RunConfig().replace(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("session_config", {}, "jax.config"),
        ("device_fn", lambda op: "/cpu:0", "Strategies place variables"),
        ("protocol", "grpc+verbs", "CommunicationOptions"),
    ],
)
def test_what_cannot_be_honoured(name: str, value: Any, advice: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{name} must be .*{advice}"):
        RunConfig(**{name: value})


@pytest.mark.parametrize("name", ["master", "cluster_spec", "is_chief", "some_undefined_property"])
def test_replace_refuses_what_follows_from_the_cluster(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"Replacing {name} is not supported"):
        RunConfig().replace(**{name: "x"})


@pytest.mark.parametrize("name", ["model_dir", "is_chief"])
def test_it_does_not_change(name: str) -> None:
    with pytest.raises(AttributeError, match="replace"):
        setattr(RunConfig(), name, "x")


def test_copies_share_their_strategies(strategy: lockstep.distribute.Strategy) -> None:
    config = RunConfig(train_distribute=strategy, model_dir="x")
    copied = copy.deepcopy(config)
    assert copied is not config
    assert copied.train_distribute is strategy
    assert str(copied) == str(config)


def test_a_class_of_ones_own() -> None:
    class Config(RunConfig):
        def __init__(self, extra: int, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.extra = extra

    config = Config(3, model_dir="x").replace(model_dir="y")
    assert isinstance(config, Config)
    assert (config.extra, config.model_dir) == (3, "y")


def test_model_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert RunConfig(tmp_path).model_dir == str(tmp_path)
    assert RunConfig().replace(model_dir=tmp_path).model_dir == str(tmp_path)
    in_task(monkeypatch, None, model_dir="there")
    with caplog.at_level(logging.INFO, "lockstep"):
        assert RunConfig().model_dir == "there"
    assert "Using model_dir in TF_CONFIG: there" in caplog.messages
    assert RunConfig("there").model_dir == "there"
    assert RunConfig("there").replace(model_dir="here").model_dir == "here"
    with pytest.raises(ArgumentError, match="the same in RunConfig and in TF_CONFIG"):
        RunConfig("here")
    in_task(monkeypatch, None, model_dir="")
    with pytest.raises(ArgumentError, match="model_dir must be a path"):
        RunConfig()


# Settings of sessions.


def test_settings_that_change_nothing() -> None:
    settings = ConfigProto(allow_soft_placement=True, log_device_placement=False)
    settings.gpu_options.force_gpu_compatible = True
    assert settings.gpu_options.allow_growth is False
    assert settings.inter_op_parallelism_threads == 0
    assert RunConfig(session_config=settings).session_config is settings
    assert ConfigProto() != settings
    assert "allow_soft_placement=True" in repr(settings)


def test_growth_too_late_is_said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    jax.devices()
    ConfigProto(gpu_options=GPUOptions(allow_growth=True))
    assert not caplog.messages
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert ConfigProto(gpu_options=GPUOptions(allow_growth=True)).gpu_options.allow_growth is True
    assert "too late" in caplog.messages[0]


def test_no_gpus_are_asked_for_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_devices, "gpu_count", lambda: 0)
    settings = ConfigProto(device_count={"GPU": 0})
    assert RunConfig(session_config=settings).session_config.device_count == {"GPU": 0}  # type: ignore[union-attr]


def test_no_gpus_are_refused_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_devices, "gpu_count", lambda: 2)
    with pytest.raises(UnsupportedError, match=r"device_count must be .*JAX_PLATFORMS"):
        ConfigProto(device_count={"GPU": 0})


@pytest.mark.parametrize(
    ("kind", "name", "value", "advice"),
    [
        (ConfigProto, "inter_op_parallelism_threads", 4, "taskset"),
        (ConfigProto, "intra_op_parallelism_threads", 1, "set_logical_cpu_devices"),
        (ConfigProto, "log_device_placement", True, "log_compiles"),
        (ConfigProto, "device_count", {"CPU": 2}, "JAX_PLATFORMS"),
        (GPUOptions, "per_process_gpu_memory_fraction", 0.5, "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        (GPUOptions, "visible_device_list", "0", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_settings_that_would_change_something(kind: Any, name: str, value: Any, advice: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{name} must be .*{advice}"):
        kind(**{name: value})
    with pytest.raises(UnsupportedError, match=f"{name} must be .*{advice}"):
        setattr(kind(), name, value)


def test_settings_that_there_are_not() -> None:
    with pytest.raises(ArgumentError, match="Received: operation_timeout_in_ms"):
        ConfigProto(operation_timeout_in_ms=3)
    with pytest.raises(AttributeError, match="Received: nonsense"):
        GPUOptions().nonsense  # noqa: B018
    with pytest.raises(ArgumentError, match="gpu_options must be"):
        ConfigProto(gpu_options={"allow_growth": True})  # type: ignore[arg-type]


def of_torchrun(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    variables = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "host0", "MASTER_PORT": "7"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("rank", [0, 2])
def test_without_tf_config_the_launcher_says_the_role(
    monkeypatch: pytest.MonkeyPatch, strategy: lockstep.distribute.Strategy, rank: int
) -> None:
    of_torchrun(monkeypatch, rank)
    config = RunConfig(train_distribute=strategy)
    assert (config.task_type, config.task_id, config.is_chief, config.num_worker_replicas) == (
        *("worker", rank, rank == 0, 3),
    )
    assert config.cluster_spec.task_address("worker", 0) == "host0:7"
    monkeypatch.delenv("RANK")
    assert config.replace(save_summary_steps=1).task_id == rank, "the environment is read once"


def test_workers_of_a_launcher_without_a_strategy_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would train alone, and save over the others."""
    of_torchrun(monkeypatch, 1)
    with pytest.raises(ClusterSpecError, match='the launcher\'s cluster must have one "chief" where no strategy'):
        RunConfig()
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert RunConfig().num_worker_replicas == 1


def test_a_role_asks_for_no_gpus(monkeypatch: pytest.MonkeyPatch, strategy: lockstep.distribute.Strategy) -> None:
    step = {"NODELIST": "n1", "NUM_TASKS": "2", "TASKS_PER_NODE": "2", "ID": "0"}
    for name, value in {**{f"SLURM_STEP_{k}": v for k, v in step.items()}, "SLURM_PROCID": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert RunConfig(train_distribute=strategy).task_id == 1
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
