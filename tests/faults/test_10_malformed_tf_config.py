"""Row 10: TF_CONFIG is not what it should be. tests/cluster_resolver has the whole table, and fuzzes it."""

from __future__ import annotations

import json
import time

import pytest

from lockstep.cluster_resolver import TFConfigClusterResolver
from lockstep.errors import ClusterSpecError

_TASK = '"task": {"type": "worker", "index": 0}'
_WORKERS = '"cluster": {"worker": ["a:1", "b:2"]}'
_INDICES = ["-1", "1.5", "true", "1000000000", "2", "null", "[]", '"one"']
TABLE = {
    "not JSON": "{",
    "a list": "[]",
    "no task": f"{{{_WORKERS}}}",
    "two chiefs": f'{{"cluster": {{"chief": ["a:1", "b:1"]}}, {_TASK}}}',
    "no workers": f'{{"cluster": {{"worker": []}}, {_TASK}}}',
    "a type that there is not": f'{{{_WORKERS}, "task": {{"type": "wroker", "index": 0}}}}',
    "a port that there is not": f'{{"cluster": {{"worker": ["a:70000", "b:1"]}}, {_TASK}}}',
    "no port": f'{{"cluster": {{"worker": ["a", "b:1"]}}, {_TASK}}}',
    "white space": f'{{"cluster": {{"worker": ["a :1", "b:1"]}}, {_TASK}}}',
    "IPv6 without brackets": f'{{"cluster": {{"worker": ["::1:1", "b:1"]}}, {_TASK}}}',
    **{f"index {i}": f'{{{_WORKERS}, "task": {{"type": "worker", "index": {i}}}}}' for i in _INDICES},
}


@pytest.mark.parametrize("name", TABLE)
def test_10_the_field_the_value_and_a_correct_example_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", TABLE[name])
    with pytest.raises(ClusterSpecError) as error:
        TFConfigClusterResolver()
    rule, received, example = str(error.value).split("\n")
    assert rule.startswith("TF_CONFIG")
    assert received.startswith("Received: ")
    assert example.startswith("Correct example: ")


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 200_000,
        '{"cluster":' * 50_000,
        '{"cluster": {"worker": [' + "9" * 100_000 + "]}}",
        json.dumps({"cluster": {"worker": ["a" * 1_000_000 + ":1"]}}),
        json.dumps({"cluster": {"w" * 1_000_000: ["a:1"]}}),
    ],
    ids=["deep lists", "deep objects", "a long number", "a long name", "a long job"],
)
def test_10_bombs_are_refused_shortly(bomb: str) -> None:
    from lockstep.cluster_resolver._tf_config import parse_tf_config

    # Of this thread: what others do meanwhile does not count.
    began = time.thread_time()
    with pytest.raises(ClusterSpecError) as error:
        parse_tf_config(bomb)
    assert len(str(error.value)) < 2000
    assert time.thread_time() - began < 5
