"""Relays: bytes of local connections go over network connections, which may be replaced."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from lockstep._engine.runtime import proxy as relay_
from lockstep._engine.runtime.proxy import ProxiedConnection, Proxy
from tests.engine.runtime.jobs import eventually


class Ways:
    """Two relays, as of two machines, with a local connection each and a network between them."""

    def __init__(self, first: bytes = b"") -> None:
        self.relays = Proxy(), Proxy()
        self.lost = threading.Event()
        (self.near, a), (self.far, b) = socket.socketpair(), socket.socketpair()
        self.carried = ProxiedConnection(a, self.lost.set), ProxiedConnection(b)
        for relay, carried in zip(self.relays, self.carried, strict=True):
            relay.add(carried)
        for s in (self.near, self.far):
            s.settimeout(20)
        self.links: list[socket.socket] = []
        self.connect(first)

    def connect(self, first: bytes = b"") -> None:
        """Makes a network connection; `first` was read from the one end already."""
        one, other = socket.socketpair()
        self.links = [one, other]
        self.relays[1].carry(self.carried[1], other)
        self.relays[0].carry(self.carried[0], one, first)

    def cut(self) -> None:
        """Ends the network connection, as a reset does."""
        for link in self.links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def ways() -> Iterator[Ways]:
    """Connected."""
    ways = Ways()
    yield ways
    ways.near.close()
    ways.far.close()


def test_much_goes_in_both_directions_to_slow_readers(ways: Ways) -> None:
    data = os.urandom(8 << 20)
    senders = [threading.Thread(target=s.sendall, args=(data,)) for s in (ways.near, ways.far)]
    for sender in senders:
        sender.start()
    for s in (ways.near, ways.far):
        with s.makefile("rb") as file:
            assert file.read(len(data)) == data
    for sender in senders:
        sender.join()


def test_nothing_is_lost_when_connections_are_replaced_while_much_is_under_way(ways: Ways) -> None:
    data = os.urandom(4 << 20)
    senders = [threading.Thread(target=s.sendall, args=(data,)) for s in (ways.near, ways.far)]
    for sender in senders:
        sender.start()
    found: dict[int, bytes] = {}

    def read(i: int, sock: socket.socket) -> None:
        with sock.makefile("rb") as file:
            found[i] = file.read(len(data))

    readers = [threading.Thread(target=read, args=(i, s)) for i, s in enumerate((ways.near, ways.far))]
    for reader in readers:
        reader.start()
    while any(reader.is_alive() for reader in readers):
        ways.cut()
        assert ways.lost.wait(10)
        ways.lost.clear()
        ways.connect()
        time.sleep(0.05)  # Some bytes go over each.
    for thread in senders:
        thread.join(20)
    assert found == {0: data, 1: data}


def test_a_connection_on_which_nothing_comes_is_given_up(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other end is open, as TCP's is while packets are lost; the relay at it has been stopped."""
    monkeypatch.setattr(relay_, "_SILENT_SECONDS", 0.5)
    silent, _kept = socket.socketpair()
    ways.near.sendall(b"before")
    assert ways.far.recv(6) == b"before"
    ways.relays[0].carry(ways.carried[0], silent)
    ways.near.sendall(b"during")
    assert ways.lost.wait(10)
    ways.connect()
    assert ways.far.recv(6) == b"during"
    _kept.close()


@pytest.mark.slow
def test_a_connection_on_which_nothing_is_said_stays(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_, "_HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(relay_, "_TICK_SECONDS", 0.05)
    monkeypatch.setattr(relay_, "_SILENT_SECONDS", 2.0)
    assert not ways.lost.wait(4)
    ways.near.sendall(b"x")
    assert ways.far.recv(1) == b"x"


@pytest.mark.parametrize("ends", [0, 1])
def test_when_one_side_ends_so_does_the_other(ways: Ways, ends: int) -> None:
    sides = ways.near, ways.far
    sides[ends].sendall(b"last")
    sides[ends].close()
    with sides[1 - ends].makefile("rb") as file:
        assert file.read() == b"last"
    for relay in ways.relays:
        eventually(lambda relay=relay: len(relay._selector.get_map()) == 1, lambda: "both ends are forgotten")
    assert not ways.lost.is_set()


def test_one_that_ends_does_not_disturb_another(ways: Ways) -> None:
    (near, a), (far, b) = socket.socketpair(), socket.socketpair()
    other = ProxiedConnection(a), ProxiedConnection(b)
    links = socket.socketpair()
    for i in (0, 1):
        ways.relays[i].add(other[i])
        ways.relays[i].carry(other[i], links[i])
    near.sendall(b"x" * 100_000)
    far.close()
    near.close()
    ways.near.sendall(b"ping")
    assert ways.far.recv(4) == b"ping"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_forked_process_has_no_part_in_a_relay(ways: Ways) -> None:
    """Nor does it keep a connection open when its parent has gone."""
    ways.near.sendall(b"ping")
    assert ways.far.recv(4) == b"ping"
    pid = os.fork()
    if pid == 0:
        link = ways.carried[0].link
        is_closed = link is not None and link.fileno() == ways.carried[0].local.fileno() == -1
        os._exit(0 if is_closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ways.far.sendall(b"pong")
    assert ways.near.recv(4) == b"pong", "the parent's are as they were"
