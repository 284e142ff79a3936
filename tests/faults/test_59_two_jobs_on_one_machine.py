"""Row 59: a second job is started on the ports of one that runs, or reaches a task of it."""

from __future__ import annotations

import secrets

import pytest

import lockstep as ls
from lockstep._engine.runtime import authentication
from lockstep._engine.servers.connection import Caller
from lockstep._engine.servers.job_cluster import agreed_of
from lockstep.cluster_resolver import ClusterSpec
from lockstep.errors import AddressError, JoinError
from tests.support.ports import free_ports


def test_59_the_second_is_refused_and_the_first_is_not_disturbed() -> None:
    worker, ps, other = (f"127.0.0.1:{port}" for port in free_ports(3))
    cluster = {"worker": [worker], "ps": [ps]}
    ls.distribute.Server(cluster, "ps", 0)
    with pytest.raises(AddressError, match=ps):
        ls.distribute.Server(cluster, "ps", 0)
    secret = authentication.secret_from_environment()
    agreed = agreed_of(ClusterSpec({"worker": [worker], "ps": [ps, other]}))
    caller = Caller("worker 0", "", secrets.token_hex(8), agreed, secret)
    with pytest.raises(JoinError, match="same chief and servers"):
        caller.connect("ps 0", ps, 5.0)
    own = Caller("worker 0", "", secrets.token_hex(8), agreed_of(ClusterSpec(cluster)), secret)
    own.connect("ps 0", ps, 5.0).close()
