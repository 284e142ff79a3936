"""Row 57: the network between one worker and one server is cut; the chief reaches both."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.messages import Message, Superseded
from lockstep._engine.servers.reachability import Reachability
from lockstep.cluster_resolver import SimpleClusterResolver
from lockstep.distribute.coordinator import ClusterCoordinator
from lockstep.errors import MissingTaskError, PeerError
from tests.support.ports import free_ports


class _Chief:
    def __init__(self, **facts: Any) -> None:
        self._facts = facts

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        del message, seconds
        return Message("state", self._facts)


def _check(seconds: float, **facts: Any) -> None:
    limits = Limits(silence=2.0)
    Reachability("worker 1", _Chief(**facts), None, {"ps 0": "10.0.0.2:2222"}, limits).check("ps 0", seconds, 4)


def test_57_the_worker_ends_and_names_the_server() -> None:
    _check(1.0, generation=4, missing=[])  # Not yet.
    with pytest.raises(PeerError, match=r"worker 1 has not reached ps 0 \(10.0.0.2:2222\) for 3 s.*and the chief has"):
        _check(3.0, generation=4, missing=[])
    _check(3.0, generation=4, missing=["ps 0"])  # It is awaited by all.
    with pytest.raises(Superseded):
        _check(3.0, generation=5, missing=[])
    with pytest.raises(Superseded):
        _check(3.0, generation=4, missing=["ps 0"], ended=True)  # It is awaited by nobody.


def test_57_functions_of_that_worker_are_given_to_others(caplog: pytest.LogCaptureFixture) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(4)]
    cluster = {"worker": addresses[:2], "ps": addresses[2:]}
    tasks = {(job, i): ls.distribute.Server(cluster, job, i) for job in cluster for i in range(2)}
    cut_off: Any = tasks["worker", 1]
    service = cut_off._served._connections.service

    def unreachable(message: Message) -> Message:
        raise MissingTaskError(f"ps 1 must answer. It does not: {message.kind}.")

    service._servers = (service._servers[0], unreachable)
    strategy = ls.distribute.ParameterServerStrategy(SimpleClusterResolver(cluster))
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        counters = [keras.Variable(np.zeros((), "int32"), trainable=False) for _ in range(4)]

    def count() -> None:
        for counter in counters:
            counter.assign_add(1)

    for _ in range(20):
        coordinator.schedule(count)
    coordinator.join()
    # What it has pushed to the one server is there once, too.
    assert [int(np.asarray(counter)) for counter in counters] == [20] * 4
    assert "worker 1 has gone: ps 1 must answer" in caplog.text
