"""Row 21: parameter servers. There are none: a `ps` task ends at once, and nobody waits for it or misses it."""

from __future__ import annotations

import json

import pytest

import lockstep as ls
from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.cluster_resolver._roles import training_tasks

CLUSTER = {"worker": ["127.0.0.1:1", "127.0.0.1:2"], "ps": ["127.0.0.1:3", "127.0.0.1:4"]}


def test_21_a_parameter_server_ends_at_once_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": CLUSTER, "task": {"type": "ps", "index": 1}}))
    with pytest.raises(
        ls.errors.ClusterSpecError, match=r"A `ps` task takes no part in synchronous training\."
    ) as error:
        ls.distribute.MultiWorkerMirroredStrategy()
    assert "This process is ps 1" in str(error.value)
    assert "Do not start the program for `ps` tasks" in str(error.value)


def test_21_nobody_waits_for_a_parameter_server() -> None:
    """Those who must arrive, and who are missed when they die, are the tasks that train."""
    assert training_tasks(ClusterSpec(CLUSTER)) == (Task("worker", 0), Task("worker", 1))
