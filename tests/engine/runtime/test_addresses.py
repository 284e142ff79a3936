"""Addresses are resolved and tried before anything waits for them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime import addresses
from lockstep._engine.runtime import limits as waits
from lockstep._engine.runtime.limits import Deadline
from lockstep._engine.runtime.rendezvous_client import Admission
from lockstep.errors import AddressError
from tests.engine.runtime.properties import steady
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


def waiting(seconds: float = 10.0) -> Deadline:
    return Deadline(seconds)


def names(monkeypatch: pytest.MonkeyPatch, **hosts: list[str]) -> None:
    """Has these names resolve to these IP addresses, and no other name to any."""

    def look_up(host: str, port: int, **kwargs: Any) -> list[Any]:
        ips = [host] if addresses.is_ip(host) else hosts.get(host, [])
        if not ips:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for ip in ips for found in REAL(ip, port, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


REAL = socket.getaddrinfo


def listen(address: str, *others: str) -> list[socket.socket]:
    return addresses.listen(address, "worker 0", others, waiting())


@contextlib.contextmanager
def listeners(address: str, *others: str) -> Iterator[list[str]]:
    """The addresses on which a first task listens."""
    with contextlib.ExitStack() as held:
        servers = [held.enter_context(contextlib.closing(s)) for s in listen(address, *others)]
        yield [addresses.join_host(*s.getsockname()[:2]) for s in servers]


@pytest.mark.parametrize(
    ("own", "others", "count"),
    [
        ("10.0.0.1:1", ["10.0.0.2:1", "10.0.0.11:1", None], 1),
        ("localhost:1", ["localhost:2", "host:1"], 2),
        ("[::1]:1", ["[::1]:2", "[::2]:2"], 2),
        (None, [None, None], 1),
    ],
)
def test_tasks_on_one_host_are_counted(own: str | None, others: list[str | None], count: int) -> None:
    assert addresses.count_on_host(own, [own, *others]) == count


def test_tasks_on_one_host_are_numbered() -> None:
    known = ["a:1", "b:1", "a:2", None, "a:3"]
    assert [addresses.place_on_host(own, known) for own in known] == [(0, 3), (0, 1), (1, 3), (0, 1), (2, 3)]


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
def test_an_ip_address_resolves_to_itself(ip: str) -> None:
    (found,) = addresses.resolve(addresses.join_host(ip, 5), "worker 0", waiting())
    assert (found.ip, found.where[1]) == (ip, 5)


def test_a_name_resolves_to_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, chief=["::1", "127.0.0.1", "127.0.0.2", "127.0.0.1"])
    found = addresses.resolve("chief:5", "worker 0", waiting())
    assert [endpoint.ip for endpoint in found] == ["::1", "127.0.0.1", "127.0.0.2"]


def test_a_name_that_appears_late_resolves(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(waits, "_REPORT_SECONDS", 0.1)
    answers = iter([OSError("Name or service not known")] * 3 + [None])

    def look_up(*args: object, **kwargs: object) -> list[object]:
        if error := next(answers):
            raise error
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 7))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    (found,) = addresses.resolve("new-pod:7", "worker 0", waiting())
    assert found == (socket.AF_INET, ("10.1.2.3", 7))
    assert "'new-pod:7', the address of worker 0, does not resolve yet: Name or service not known" in caplog.text


def test_a_name_that_never_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch)
    began = time.monotonic()
    told = r"within 0.3 s \(LOCKSTEP_JOIN_TIMEOUT\). 'no-pod:7', the address of worker 2, does not: .*Name or service"
    with pytest.raises(AddressError, match=told):
        addresses.resolve("no-pod:7", "worker 2", waiting(0.3))
    assert 0.1 <= time.monotonic() - began < 2


@pytest.mark.parametrize("host", ["no-such-host.invalid", "No-Such-Host.INVALID."])
def test_a_name_that_no_dns_has_is_refused_at_once(host: str) -> None:
    began = time.monotonic()
    with pytest.raises(AddressError, match="Correct the address in the cluster description"):
        addresses.resolve(f"{host}:1", "worker 0", waiting(300.0))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("ips", "towards", "outward"),
    [
        (["10.0.0.2"], "10.0.0.9", "10.0.0.2"),
        (["127.0.1.1"], "10.0.0.9", None),  # Debian's own name.
        (["127.0.1.1", "10.0.0.2"], "10.0.0.9", "10.0.0.2"),
        (["fd00::2", "10.0.0.2"], "10.0.0.2", "10.0.0.2"),
        (["fd00::2", "10.0.0.3"], "10.0.0.2", "10.0.0.3"),
        (["10.0.0.3"], "fd00::2", None),  # Gloo takes addresses of one family.
        (["127.0.1.1"], "127.0.0.1", "127.0.1.1"),
        (["::ffff:127.0.0.1"], "10.0.0.9", None),
        ([], "10.0.0.9", None),
    ],
)
def test_the_address_for_others(monkeypatch: pytest.MonkeyPatch, ips: list[str], towards: str, outward: str) -> None:
    names(monkeypatch, me=ips)
    assert addresses.reachable_address("me:5", towards) == outward


def test_an_unknown_address_is_none_for_others() -> None:
    assert addresses.reachable_address("address unknown", "10.0.0.9") is None


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.0.0.2", "::1"])
def test_listening_is_on_the_address_alone(ip: str) -> None:
    address = addresses.join_host(ip, *free_ports(1))
    with listeners(address) as found:
        assert found == [address]


def test_listening_is_on_all_addresses_of_a_name_that_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task may reach another one of them."""
    names(monkeypatch, chief=["203.0.113.7", "::1", "127.0.0.1", "127.0.0.2"])
    (port,) = free_ports(1)
    with listeners(f"chief:{port}") as found:
        assert found == [addresses.join_host(ip, port) for ip in ("::1", "127.0.0.1", "127.0.0.2")]


def test_a_port_in_use() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressError, match=r"Address already in use\. If another program") as error:
            listen(address)
        assert f"worker 0 cannot listen on '{address}' (127.0.0.1)" in str(error.value)


def test_a_port_in_use_on_one_of_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, chief=["127.0.0.2", "127.0.0.1"])
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        for _ in range(2):  # What was opened is closed again.
            with pytest.raises(AddressError, match=r"\(127.0.0.1\): Address already in use"):
                listen(f"chief:{port}")


def test_addresses_of_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, chief=["203.0.113.7", "2001:db8::7"])
    with pytest.raises(AddressError, match="if the address is not of this machine, correct it in TF_CONFIG") as error:
        listen("chief:2222")
    for ip in ("203.0.113.7", "2001:db8::7"):
        assert f"({ip}): Cannot assign requested address" in str(error.value)


class Elsewhere:
    """Another machine as this one sees it: where it listens is recorded, for it has one interface only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, facing: str | None) -> None:
        self.bound: list[str] = []
        monkeypatch.setattr(addresses, "is_own", lambda ip: ip == "10.0.0.1")
        monkeypatch.setattr(addresses, "local_address_towards", lambda endpoint: facing)
        monkeypatch.setattr(addresses, "_server", self._server)

    def _server(self, endpoint: addresses.Endpoint) -> socket.socket:
        self.bound.append(endpoint.ip)
        return socket.socket()


@pytest.mark.parametrize(
    ("chief", "others", "facing", "bound", "told"),
    [
        # Debian's own name for itself, and tasks on two machines.
        ("node1", ["node1:6", "node2:5"], "10.0.0.1", ["127.0.1.1", "10.0.0.1"], "also listens on 10.0.0.1"),
        ("node1", ["node2:5"], None, ["127.0.1.1"], "Tasks on other machines cannot reach it"),
        ("node1", ["not-yet:5"], None, ["127.0.1.1"], "Tasks on other machines cannot reach it"),
        ("node1", ["address unknown"], None, ["127.0.1.1"], "Tasks on other machines cannot reach it"),
        ("127.0.0.1", ["node2:5"], "10.0.0.1", ["127.0.0.1"], "Tasks on other machines cannot reach it"),
        ("127.0.0.1", ["address unknown", "not-yet:5"], "10.0.0.1", ["127.0.0.1"], ""),
        # All on this machine.
        ("node1", ["node1:6", "here:5", "10.0.0.1:5"], "10.0.0.1", ["127.0.1.1"], ""),
        ("both", ["node2:5"], "10.0.0.1", ["127.0.1.1", "10.0.0.1"], ""),
    ],
)
def test_a_name_that_leads_to_the_loopback_interface_is_told_of_at_once(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    chief: str,
    others: list[str],
    facing: str | None,
    bound: list[str],
    told: str,
) -> None:
    names(monkeypatch, node1=["127.0.1.1"], node2=["10.0.0.2"], here=["127.0.0.1"], both=["127.0.1.1", "10.0.0.1"])
    elsewhere = Elsewhere(monkeypatch, facing)
    for server in listen(f"{chief}:5", *others):
        server.close()
    assert elsewhere.bound == bound
    assert told in caplog.text and bool(caplog.text) == bool(told)
    assert ("loopback" in caplog.text and "/etc/hosts" in caplog.text) == bool(told)


def test_the_interface_towards_another_task() -> None:
    endpoint = addresses.lookup("127.0.0.9:5")[0]
    assert addresses.local_address_towards(endpoint) == "127.0.0.1"
    assert addresses.is_own("127.0.0.9") and not addresses.is_own("203.0.113.7")


def test_a_port_that_was_just_in_use_is_free() -> None:
    """A restarted job does not wait for the connections of its predecessor to be forgotten."""
    (port,) = free_ports(1)
    for _ in range(2):
        (server,) = listen(f"127.0.0.1:{port}")
        with contextlib.closing(server):
            client = socket.create_connection(("127.0.0.1", port))
            accepted, _ = server.accept()
            accepted.close()
            client.close()


@pytest.mark.parametrize(
    ("own", "reached", "told", "outside"),
    [
        ("10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("10.0.0.2", "10.0.0.1", None, "10.0.0.2"),
        ("10.0.0.2", "10.0.0.1", "no address", "10.0.0.2"),
        ("127.0.0.1", "127.0.1.1", "10.0.0.1", "10.0.0.1"),  # On the first task's machine, and others are not.
        ("127.0.0.1", "127.0.1.1", "127.0.1.1", "127.0.1.1"),
        ("fd00::2", "fd00::1", "127.0.0.9", "127.0.0.1"),  # The others have reached it over IPv4.
    ],
)
def test_a_task_takes_an_address_that_the_others_reach(own: str, reached: str, told: object, outside: str) -> None:
    assert Admission({"ip": told}, own, reached, "").outside == outside
