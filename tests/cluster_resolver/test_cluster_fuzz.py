"""Whatever a cluster is described by, the result is a valid object or a `ClusterSpecError`; never anything else."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.cluster_resolver import (
    ClusterSpec,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    TorchrunClusterResolver,
)
from lockstep.cluster_resolver._field import Field
from lockstep.cluster_resolver._roles import chief_task, id_in_cluster, is_chief, training_tasks
from lockstep.cluster_resolver._slurm import expand_counts, expand_hosts
from lockstep.cluster_resolver._spec import JOBS
from lockstep.errors import ClusterSpecError

# The same examples in every run; the fixture that it complains about only has to act once.
fuzz = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "150")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([10**9, -1, 0, 1, 2]), st.floats(), st.text(max_size=20)
)
ADDRESSES = st.one_of(
    st.builds(
        "{}:{}".format, st.sampled_from(["h1", "h2", "[::1]", "::1", "10.0.0.1", "", " h"]), st.integers(-1, 70_000)
    ),
    st.text(max_size=20),
    SCALARS,
)
KEYS = st.one_of(
    st.sampled_from([*JOBS, "cluster", "task", "type", "index", "rpc_layer", "0", "1", "01"]), st.text(max_size=8)
)
VALUES = st.recursive(
    st.one_of(SCALARS, ADDRESSES),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=12,
)
TASK_LISTS = st.lists(ADDRESSES, max_size=4) | st.dictionaries(st.sampled_from(["0", "1", "5", "x"]), ADDRESSES)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "cluster": st.dictionaries(st.sampled_from(JOBS) | KEYS, TASK_LISTS | VALUES, max_size=4),
        "task": st.fixed_dictionaries({}, optional={"type": st.sampled_from(JOBS) | VALUES, "index": VALUES}) | VALUES,
        "rpc_layer": VALUES,
        "session_master": VALUES,
        "environment": VALUES,
    },
)
OBJECTS = st.recursive(
    SCALARS | st.binary(max_size=8) | st.complex_numbers() | st.just(object()),
    lambda children: (
        st.lists(children, max_size=3)
        | st.tuples(children)
        | st.sets(SCALARS, max_size=3)
        | st.dictionaries(SCALARS | st.sampled_from(JOBS), children, max_size=3)
    ),
    max_leaves=10,
)
VALID = {
    "cluster": {"chief": ["c:1"], "worker": ["w0:1", "w1:1"], "ps": {"1": "p:1"}},
    "task": {"type": "worker", "index": 1},
    "rpc_layer": "grpc",
}
VALID_CLUSTERS = st.dictionaries(
    st.sampled_from(["worker", "ps"]), st.dictionaries(st.integers(0, 12), st.just(""), min_size=1), min_size=0
).map(lambda jobs: {job: {i: f"{job}{i}:1" for i in tasks} for job, tasks in jobs.items()})


def check_resolver(text: str) -> None:
    """Holds the rule for one TF_CONFIG, and what follows from it for the rest of the interface."""
    os.environ["TF_CONFIG"] = text
    try:
        resolver = TFConfigClusterResolver()
        master = resolver.master()
    except ClusterSpecError as error:
        assert len(str(error)) < 1000
        assert "Received: " in str(error) and "Correct example: " in str(error)
        return
    spec = resolver.cluster_spec()
    assert ClusterSpec(spec.as_dict()) == spec
    assert isinstance(master, str)
    assert is_chief(spec, resolver.task_type, resolver.task_id) in (True, False)


@fuzz
@given(VALUES)
def test_any_json(value: Any) -> None:
    check_resolver(json.dumps(value))


@fuzz
@given(CONFIGS)
def test_json_of_the_right_shape(config: Any) -> None:
    check_resolver(json.dumps(config))


@fuzz
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60))
def test_any_text(text: str) -> None:
    check_resolver(text)


@fuzz
@given(st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"")))
def test_any_bytes(data: bytes) -> None:
    check_resolver(os.fsdecode(data))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Returns every (container, key) in a JSON value."""
    entries = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in entries] + [place for _, child in entries for place in places(child)]


@fuzz
@given(st.data())
def test_a_valid_config_with_something_else_in_one_place(data: st.DataObject) -> None:
    config = copy.deepcopy(VALID)
    container, key = data.draw(st.sampled_from(places(config)))
    if data.draw(st.booleans()) and isinstance(container, dict):
        container[data.draw(KEYS)] = container.pop(key)
    else:
        container[key] = data.draw(VALUES)
    check_resolver(json.dumps(config))


@fuzz
@given(st.data())
def test_the_text_of_a_valid_config_with_something_else_in_one_place(data: st.DataObject) -> None:
    text = json.dumps(VALID)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    check_resolver(text[:start] + data.draw(st.text('{}[]",:0123456789\\uabet.-', max_size=6)) + text[end:])


@fuzz
@given(OBJECTS | st.dictionaries(st.sampled_from(JOBS), OBJECTS, max_size=3))
def test_any_object_as_a_cluster(value: Any) -> None:
    try:
        spec = ClusterSpec(value)
    except ClusterSpecError:
        return
    assert ClusterSpec(spec.as_dict()) == spec


@fuzz
@given(VALID_CLUSTERS)
def test_a_cluster_survives_being_written_out(cluster: dict[str, dict[int, str]]) -> None:
    spec = ClusterSpec(cluster)
    assert ClusterSpec(spec.as_dict()) == ClusterSpec(spec) == spec
    assert hash(ClusterSpec(spec.as_dict())) == hash(spec)
    assert {job: {i: spec.task_address(job, i) for i in spec.task_indices(job)} for job in spec.jobs} == cluster


@fuzz
@given(VALID_CLUSTERS)
def test_those_who_train_are_numbered_without_gaps_from_the_only_chief(cluster: dict[str, dict[int, str]]) -> None:
    spec = ClusterSpec(cluster)
    tasks = training_tasks(spec)
    assert [id_in_cluster(spec, task.type, task.index) for task in tasks] == list(range(len(tasks)))
    chiefs = [task for task in spec.tasks if is_chief(spec, task.type, task.index)]
    assert chiefs == ([chief_task(spec)] if tasks else [])


@fuzz
@given(st.text("n[]-,0123456789 (x)", max_size=20))
def test_any_slurm_list(text: str) -> None:
    for expand in (expand_hosts, expand_counts):
        try:
            assert len(expand(Field("LIST", text))) <= 100_000
        except ClusterSpecError as error:
            assert str(error).startswith("LIST ")


@pytest.mark.parametrize(
    ("resolver", "names"),
    [
        (
            SlurmClusterResolver,
            ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"],
        ),
        (TorchrunClusterResolver, ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]),
    ],
)
def test_any_variables_of_a_launcher(resolver: Any, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    @fuzz
    @given(
        st.lists(
            st.sampled_from(["", "0", "1", "2", "1(x2)", "n[1-2]", "h"]) | st.text("0123n[-]", max_size=6),
            min_size=4,
            max_size=4,
        )
    )
    def check(values: list[str]) -> None:
        os.environ.update(zip(names, values, strict=True))
        try:
            found = resolver()
        except ClusterSpecError:
            return
        assert found.task in found.cluster_spec().tasks

    check()
