"""Row 13: ports in use, names that do not resolve, IPv6, and proxies."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from lockstep._engine.runtime import addresses, join
from lockstep._engine.runtime.limits import Deadline
from lockstep.errors import AddressError
from tests.support.ports import free_ports


def test_13_a_port_in_use_is_told_at_once_with_its_address() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressError, match=r"Address already in use\. If another program") as error:
            addresses.listen(address, "worker 0", [], Deadline(10.0))
    assert address in str(error.value)


def test_13_a_name_that_does_not_resolve_is_told_with_what_to_do() -> None:
    with pytest.raises(AddressError, match="Correct the address in the cluster description"):
        addresses.resolve("no-such-host.invalid:1", "worker 0", Deadline(0.0))


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
def test_13_only_the_interface_that_is_named_is_bound(ip: str) -> None:
    (server,) = addresses.listen(addresses.join_host(ip, free_ports(1, ip)[0]), "worker 0", [], Deadline(10.0))
    with contextlib.closing(server):
        assert server.getsockname()[0] == ip


def test_13_no_proxy_comes_between_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://nowhere:1")
    monkeypatch.setenv("no_proxy", "example.com")
    monkeypatch.setenv("no_grpc_proxy", "")
    join._bypass_proxy("10.1.2.3")
    assert os.environ[join._NO_GRPC_PROXY] == "example.com,10.1.2.3"
