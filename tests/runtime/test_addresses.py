"""Addresses are resolved and tried before anything waits for them."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._runtime import addresses
from lockstep.errors import AddressError
from tests.runtime.properties import steady
from tests.support.cluster import free_ports

PORTS = st.integers(1, 65535)


@steady
@given(st.ip_addresses(), PORTS)
def test_addresses_survive_splitting_and_joining(ip: object, port: int) -> None:
    assert addresses.split(addresses.join_host(str(ip), port)) == (str(ip), port)


@pytest.mark.parametrize(
    ("address", "parts"),
    [("host:80", ("host", 80)), ("10.0.0.1:65535", ("10.0.0.1", 65535)), ("[fd00::2]:22", ("fd00::2", 22))],
)
def test_split(address: str, parts: tuple[str, int]) -> None:
    assert addresses.split(address) == parts


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
def test_an_ip_address_resolves_to_itself(ip: str) -> None:
    assert addresses.resolve(addresses.join_host(ip, 5), "worker 0") == (ip, 5)


def test_a_name_resolves() -> None:
    assert addresses.resolve("localhost:5", "worker 0")[0] in ("127.0.0.1", "::1")


def test_a_name_that_appears_late_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([OSError("Name or service not known"), OSError("Try again"), None])

    def look_up(*args: object, **kwargs: object) -> list[object]:
        if error := next(answers):
            raise error
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 7))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert addresses.resolve("new-pod:7", "worker 0") == ("10.1.2.3", 7)


def test_a_name_that_never_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*args: object, **kwargs: object) -> list[object]:
        raise OSError("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(addresses, "_RESOLVE_SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(AddressError, match="'no-pod:7', the address of worker 2, does not: Name or service not known"):
        addresses.resolve("no-pod:7", "worker 2")
    assert 0.3 <= time.monotonic() - began < 2


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.0.0.2", "::1"])
def test_listening_is_on_the_address_alone(ip: str) -> None:
    (port,) = free_ports(1)
    with contextlib.closing(addresses.listen(addresses.join_host(ip, port), "worker 0")) as server:
        assert server.getsockname()[:2] == (ip, port)


def test_a_port_in_use() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressError, match=r"Address already in use\. If another program") as error:
            addresses.listen(address, "chief 0")
        assert f"chief 0 cannot listen on '{address}' (127.0.0.1)" in str(error.value)


def test_an_address_of_another_machine() -> None:
    with pytest.raises(AddressError, match="if the address is not of this machine, correct it in TF_CONFIG"):
        addresses.listen("203.0.113.7:2222", "worker 0")


def test_a_port_that_was_just_in_use_is_free() -> None:
    """A restarted job does not wait for the connections of its predecessor to be forgotten."""
    (port,) = free_ports(1)
    for _ in range(2):
        with contextlib.closing(addresses.listen(f"127.0.0.1:{port}", "worker 0")) as server:
            client = socket.create_connection(("127.0.0.1", port))
            accepted, _ = server.accept()
            accepted.close()
            client.close()
