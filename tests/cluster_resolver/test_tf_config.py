from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.cluster_resolver import ClusterSpec, Task, TFConfigClusterResolver
from lockstep.cluster_resolver._tf_config import parse_tf_config
from lockstep.errors import ClusterSpecError

CLUSTER = {"worker": ["host1:2222", "host2:2222", "host3:2222"], "ps": ["host4:2222", "host5:2222"]}
TASK = {"type": "worker", "index": 1}
INDEX, TYPE = 'TF_CONFIG["task"]["index"]', 'TF_CONFIG["task"]["type"]'


def resolver(monkeypatch: pytest.MonkeyPatch, config: object, **overrides: Any) -> TFConfigClusterResolver:
    text = config if isinstance(config, str) else json.dumps(config)
    monkeypatch.setenv("TF_CONFIG", text)
    return TFConfigClusterResolver(**overrides)


def with_cluster(cluster: object) -> dict[str, object]:
    return {"cluster": cluster, "task": {"type": "worker", "index": 0}}


def with_task(**task: object) -> dict[str, object]:
    return {"cluster": CLUSTER, "task": task}


def test_a_worker_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, {"cluster": CLUSTER, "task": TASK})
    assert found.cluster_spec().as_dict() == CLUSTER
    assert (found.task_type, found.task_id, found.task) == ("worker", 1, Task("worker", 1))
    assert found.rpc_layer is None
    assert found.environment == ""
    assert found.master() == "host2:2222"
    assert found.master(rpc_layer="grpc") == "grpc://host2:2222"
    assert found.master("ps", 0) == "host4:2222"
    assert found.master("ps", 0, "https") == "https://host4:2222"


def test_tf_config_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, {"cluster": CLUSTER, "task": TASK})
    monkeypatch.setenv("TF_CONFIG", "nonsense")
    assert found.cluster_spec() == ClusterSpec(CLUSTER)
    assert found.master() == "host2:2222"


@pytest.mark.parametrize("text", [None, "", " \n", "{}", '{"cluster": {}}', '{"cluster": {}, "task": {"trial": "7"}}'])
def test_without_a_cluster_a_process_is_alone(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    found = TFConfigClusterResolver()
    assert found.cluster_spec() == ClusterSpec({})
    assert (found.task_type, found.task_id, found.task, found.rpc_layer) == (None, None, None, None)
    assert found.master() == ""


@pytest.mark.parametrize("job", ["worker", "chief", "master", "evaluator"])
def test_a_task_may_be_alone(monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    found = resolver(monkeypatch, {"task": {"type": job, "index": 0}})
    assert found.task == Task(job, 0)
    assert found.master() == ""


def test_a_task_alone_may_lack_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, {"cluster": {}, "task": {"type": "worker"}})
    assert (found.task_type, found.task_id, found.task) == ("worker", None, None)


@pytest.mark.parametrize(
    ("task", "field", "received"),
    [
        ({"type": "ps", "index": 0}, TYPE, "'ps'"),
        ({"type": "nonsense", "index": 0}, TYPE, "'nonsense'"),
        ({"type": "worker", "index": 1}, INDEX, "1"),
        ({"type": "worker", "index": "zero"}, INDEX, "'zero'"),
        ({"type": "evaluator", "index": -1}, INDEX, "-1"),
    ],
)
def test_a_task_that_needs_a_cluster_is_not_alone(
    monkeypatch: pytest.MonkeyPatch, task: dict[str, object], field: str, received: str
) -> None:
    with pytest.raises(ClusterSpecError) as caught:
        resolver(monkeypatch, {"task": task})
    rule, value, correct = str(caught.value).split("\n")
    assert rule.startswith(f"{field} must")
    assert value == f"Received: {received}"
    assert correct.startswith(f"Correct example: {field} = ")


def test_an_only_task_has_nobody_to_talk_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolver(monkeypatch, with_cluster({"worker": ["h:1"]}), rpc_layer="grpc").master() == ""


def test_a_session_master_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"cluster": CLUSTER, "task": TASK, "session_master": "sessionmaster:2222", "rpc_layer": "grpc"}
    assert resolver(monkeypatch, config).master() == "sessionmaster:2222"


def test_rpc_layer_and_environment_come_from_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, {"cluster": CLUSTER, "task": TASK, "rpc_layer": "istio", "environment": "cloud"})
    assert (found.rpc_layer, found.environment) == ("istio", "cloud")
    assert found.master() == "istio://host2:2222"
    assert found.master(rpc_layer="") == "host2:2222"


def test_arguments_override_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"cluster": CLUSTER, "task": TASK, "rpc_layer": "http", "environment": "cloud"}
    found = resolver(monkeypatch, config, task_type="ps", task_id=0, rpc_layer="grpc", environment="google")
    assert (found.task_type, found.task_id, found.rpc_layer, found.environment) == ("ps", 0, "grpc", "google")
    assert found.master() == "grpc://host4:2222"


def test_arguments_can_be_the_only_task(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolver(monkeypatch, {"cluster": CLUSTER}, task_type="worker", task_id=2).task == Task("worker", 2)


@pytest.mark.parametrize(
    ("overrides", "field"),
    [({"task_id": 2}, "task_id"), ({"task_id": "0"}, "task_id"), ({"task_type": "chief"}, "task_type")],
)
def test_a_wrong_argument_is_named_as_such(
    monkeypatch: pytest.MonkeyPatch, overrides: dict[str, Any], field: str
) -> None:
    config = {"cluster": CLUSTER, "task": {"type": "ps", "index": 0}}
    with pytest.raises(ClusterSpecError, match=f"^{field} must"):
        resolver(monkeypatch, config, **overrides)


def test_an_evaluator_may_stand_outside_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, with_task(type="evaluator", index=4))
    assert found.task == Task("evaluator", 4)
    assert found.master() == ""
    assert found.master("worker", 0) == "host1:2222"


def test_an_evaluator_inside_the_cluster_is_one_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {**CLUSTER, "evaluator": ["e:1"]}
    assert resolver(monkeypatch, {"cluster": cluster, "task": {"type": "evaluator", "index": 0}}).master() == "e:1"
    with pytest.raises(ClusterSpecError, match="has 1 task, index 0"):
        resolver(monkeypatch, {"cluster": cluster, "task": {"type": "evaluator", "index": 1}})


def test_sparse_jobs_have_strings_for_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"cluster": {"worker": {"3": "d:1", "1": "b:1"}}, "task": {"type": "worker", "index": 3}}
    found = resolver(monkeypatch, config)
    assert found.cluster_spec().as_dict() == {"worker": {1: "b:1", 3: "d:1"}}
    assert found.master() == "d:1"


def test_other_keys_are_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "cluster": CLUSTER,
        "task": {**TASK, "trial": "1", "cloud": "x"},
        "model_dir": 1,
        "service": None,
        "eval_session_master": "x",
        "job": {},
        "my own": [1, 2.5, None],
    }
    assert resolver(monkeypatch, config).task == Task("worker", 1)


def test_null_stands_for_an_absent_text(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"cluster": CLUSTER, "task": TASK, "rpc_layer": None, "session_master": None, "environment": None}
    found = resolver(monkeypatch, config)
    assert (found.rpc_layer, found.environment, found.master()) == (None, "", "host2:2222")


def test_the_task_and_the_rpc_layer_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    found = resolver(monkeypatch, {"cluster": CLUSTER, "task": TASK})
    found.task_type, found.task_id, found.rpc_layer = "ps", 1, "grpc"
    assert found.master() == "grpc://host5:2222"
    with pytest.raises(ClusterSpecError, match=r"^task_type must name one of the jobs"):
        found.task_type = "wroker"
    with pytest.raises(ClusterSpecError, match=r"^task_id must be an integer"):
        found.task_id = -1
    with pytest.raises(ClusterSpecError, match=r"^rpc_layer must be a string"):
        found.rpc_layer = 7  # pyright: ignore
    found.task_id = 7
    with pytest.raises(ClusterSpecError, match="has 2 tasks, index 0 to 1"):
        found.master()


# The index, and how the message shows it.
BAD_INDICES = [
    ("3", "3"),
    ("-1", "'-1'"),
    ("1.5", "'1.5'"),
    (-1, "-1"),
    (1.5, "1.5"),
    (1.0, "1.0"),
    (True, "True"),
    (False, "False"),
    (3, "3"),
    (10**9, "1000000000"),
    (10**4000, "1000"),
    (None, "None"),
    ([], "[]"),
    ({}, "{}"),
]


def test_an_index_may_be_in_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolver(monkeypatch, with_task(type="worker", index="2")).task_id == 2


@pytest.mark.parametrize(("index", "received"), BAD_INDICES, ids=[shown for _, shown in BAD_INDICES])
def test_an_index_is_an_integer_below_the_number_of_tasks(
    monkeypatch: pytest.MonkeyPatch, index: object, received: str
) -> None:
    with pytest.raises(ClusterSpecError) as caught:
        resolver(monkeypatch, with_task(type="worker", index=index))
    rule, value, correct = str(caught.value).split("\n")
    assert rule == f'{INDEX} must be an integer without quotes: job "worker" has 3 tasks, index 0 to 2.'
    assert value.startswith(f"Received: {received}")
    assert correct == f"Correct example: {INDEX} = 0"
    assert len(value) < 200


# What TF_CONFIG holds, the field that is wrong, a part of the rule, the received value, the correct example.
BAD: list[tuple[object, str, str, str, str]] = [
    ("{", "TF_CONFIG", "must be JSON", "'{'", '{"cluster": {"worker"'),
    ("{'cluster': {}}", "TF_CONFIG", "must be JSON", '"{', '{"cluster": {"worker"'),
    ("cluster", "TF_CONFIG", "must be JSON", "'cluster'", '{"cluster": {"worker"'),
    ("NaN", "TF_CONFIG", "NaN is not", "'NaN'", '{"cluster": {"worker"'),
    ('{"a": -Infinity}', "TF_CONFIG", "-Infinity is not", "'{\"a", '{"cluster": {"worker"'),
    ('{"a": 1' + "0" * 5000 + "}", "TF_CONFIG", "must be JSON", "'{\"a", '{"cluster": {"worker"'),
    ("[" * 100_000, "TF_CONFIG", "not nested so deeply", "'[[", '{"cluster": {"worker"'),
    ('{"a":' * 50_000 + "1" + "}" * 50_000, "TF_CONFIG", "not nested so deeply", "'{", '{"cluster": {"worker"'),
    ('{"task": {}, "task": {}}', "TF_CONFIG", 'key "task" must not occur twice', "'{", '{"cluster": {"worker"'),
    ('{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}', "TF_CONFIG", 'key "worker"', "'{", '{"cluster"'),
    ("[]", "TF_CONFIG", "JSON object", "[]", '{"cluster": {"worker"'),
    ("null", "TF_CONFIG", "JSON object", "None", '{"cluster": {"worker"'),
    ("1", "TF_CONFIG", "JSON object", "1", '{"cluster": {"worker"'),
    ('"worker"', "TF_CONFIG", "JSON object", "'worker'", '{"cluster": {"worker"'),
    (with_cluster(None), 'TF_CONFIG["cluster"]', "must be an object", "None", '{"cluster": {"worker"'),
    (with_cluster([]), 'TF_CONFIG["cluster"]', "must be an object", "[]", '{"cluster": {"worker"'),
    (with_cluster("x"), 'TF_CONFIG["cluster"]', "must be an object", "'x'", '{"cluster": {"worker"'),
    (with_cluster({"wroker": ["h:1"]}), 'TF_CONFIG["cluster"]', "does not exist", "'wroker'", '{"worker"'),
    (with_cluster({"worker": []}), 'TF_CONFIG["cluster"]["worker"]', "at least one", "[]", '["host1'),
    (with_cluster({"worker": "h:1"}), 'TF_CONFIG["cluster"]["worker"]', "must be a list", "'h:1'", '["host1'),
    (with_cluster({"worker": ["h:1", "h:1"]}), 'TF_CONFIG["cluster"]["worker"][1]', "must differ", "'h:1'", '["host1'),
    (with_cluster({"worker": ["h:99999"]}), 'TF_CONFIG["cluster"]["worker"][0]', "65535", "'h:99999'", '"h:2222"'),
    (with_cluster({"worker": ["h"]}), 'TF_CONFIG["cluster"]["worker"][0]', "must have a port", "'h'", '"h:2222"'),
    (with_cluster({"worker": ["::1:22"]}), 'TF_CONFIG["cluster"]["worker"][0]', "brackets", "'::1:22'", '"[::1]:22"'),
    (with_cluster({"worker": ["h:1 "]}), 'TF_CONFIG["cluster"]["worker"][0]', "whitespace", "'h:1 '", '"h:1"'),
    (with_cluster({"worker": {"01": "h:1"}}), 'TF_CONFIG["cluster"]["worker"]', "no integer", "'01'", '{"1": "host1'),
    (with_cluster({"worker": {" 1": "h:1"}}), 'TF_CONFIG["cluster"]["worker"]', "no integer", "' 1'", '{"1": "host1'),
    (with_cluster({"worker": {"1.0": "h:1"}}), 'TF_CONFIG["cluster"]["worker"]', "no integer", "'1.0'", '{"1": "host1'),
    (with_cluster({"worker": {"-1": "h:1"}}), 'TF_CONFIG["cluster"]["worker"]', "no integer", "'-1'", '{"1": "host1'),
    (with_cluster({"worker": {"１": "h:1"}}), 'TF_CONFIG["cluster"]["worker"]', "no integer", "'１'", '{"1": "host1'),
    (with_cluster({"worker": {str(10**9): "h:1"}}), 'TF_CONFIG["cluster"]["worker"]', "no integer", "10000", '{"1"'),
    (with_cluster({"worker": {"1" * 5000: "h:1"}}), 'TF_CONFIG["cluster"]["worker"]', "no integer", "'111", '{"1"'),
    (with_cluster({"chief": ["a:1", "b:1"]}), 'TF_CONFIG["cluster"]["chief"]', "one chief", "['a:1'", '["host0:2222"]'),
    (with_cluster({"chief": ["a:1"], "master": ["b:1"]}), 'TF_CONFIG["cluster"]', "both", "{'chief'", '{"chief"'),
    ({"cluster": CLUSTER}, TYPE, "must name one of the jobs", "nothing", f'{TYPE} = "worker"'),
    ({"cluster": CLUSTER, "task": None}, 'TF_CONFIG["task"]', "must be an object", "None", '"task": {"type"'),
    ({"cluster": CLUSTER, "task": []}, 'TF_CONFIG["task"]', "must be an object", "[]", '"task": {"type"'),
    ({"task": "worker"}, 'TF_CONFIG["task"]', "must be an object", "'worker'", '"task": {"type"'),
    (with_task(index=0), TYPE, "must name one of the jobs", "nothing", f'{TYPE} = "worker"'),
    (with_task(type="worker"), INDEX, "must be an integer", "nothing", f"{INDEX} = 0"),
    (with_task(type="wroker", index=0), TYPE, '"chief", "master", "worker", "ps"', "'wroker'", f'{TYPE} = "worker"'),
    (with_task(type="chief", index=0), TYPE, '"worker", "ps"; or "evaluator"', "'chief'", f'{TYPE} = "worker"'),
    (with_task(type=1, index=0), TYPE, "must name one of the jobs", "1", f'{TYPE} = "worker"'),
    (with_task(type=["worker"], index=0), TYPE, "must name one of the jobs", "['worker']", f'{TYPE} = "worker"'),
    (with_task(type="", index=0), TYPE, "must name one of the jobs", "''", f'{TYPE} = "worker"'),
    (with_task(type="evaluator", index=-1), INDEX, "must be an integer", "-1", f"{INDEX} = 0"),
    (with_task(type="evaluator", index="a"), INDEX, "must be an integer", "'a'", f"{INDEX} = 0"),
    ({"rpc_layer": 1}, 'TF_CONFIG["rpc_layer"]', "must be a string", "1", '["rpc_layer"] = "grpc"'),
    (
        {"session_master": ["x"]},
        'TF_CONFIG["session_master"]',
        "must be a string",
        "['x']",
        '["session_master"] = "host1:2222"',
    ),
    ({"environment": {}}, 'TF_CONFIG["environment"]', "must be a string", "{}", '["environment"] = "cloud"'),
]


@pytest.mark.parametrize(("config", "field", "rule", "received", "example"), BAD)
def test_what_is_wrong_with_tf_config_names_field_value_and_example(
    monkeypatch: pytest.MonkeyPatch, config: object, field: str, rule: str, received: str, example: str
) -> None:
    with pytest.raises(ClusterSpecError) as caught:
        resolver(monkeypatch, config)
    told, value, correct = str(caught.value).split("\n")
    assert told.startswith(f"{field} ")
    assert rule in told
    assert value.startswith(f"Received: {received}")
    assert example in correct
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("text", [b"{}", None, 1])
def test_tf_config_is_text(text: object) -> None:
    with pytest.raises(ClusterSpecError, match="TF_CONFIG must be JSON text"):
        parse_tf_config(text)


@pytest.mark.parametrize("name", ["rpc_layer", "environment"])
def test_arguments_are_texts(name: str) -> None:
    with pytest.raises(ClusterSpecError, match=f"^{name} must be a string"):
        TFConfigClusterResolver(**{name: 1})  # pyright: ignore
