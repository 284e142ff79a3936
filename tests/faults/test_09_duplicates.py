"""Row 9: a task or an address twice in the cluster."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from lockstep.cluster_resolver import ClusterSpec, TFConfigClusterResolver
from lockstep.errors import ClusterSpecError


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    "cluster",
    [
        {"worker": ["a:1", "a:1"]},
        {"chief": ["a:1"], "worker": ["b:1", "a:1"]},
        {"worker": ["[::1]:7", "[0:0::1]:7"]},
        {"worker": ["Host:7", "host:7"]},
    ],
)
def test_09_an_address_is_used_once(cluster: dict[str, list[str]]) -> None:
    with pytest.raises(ClusterSpecError) as error:
        ClusterSpec(cluster)
    assert isinstance(error.value, ValueError)
    assert "Received: " in str(error.value)


def test_09_a_task_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key twice in JSON is one of which a reader sees the last only: it is refused."""
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'
    )
    with pytest.raises(ClusterSpecError):
        TFConfigClusterResolver()
    sparse = {"cluster": {"worker": {"0": "a:1", "00": "b:1"}}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(sparse))
    with pytest.raises(ClusterSpecError):
        TFConfigClusterResolver()
