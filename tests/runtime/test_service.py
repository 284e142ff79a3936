"""Where jax's service listens: doors that only this user can enter, and relays to it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep._runtime import door, gloo, mtls
from lockstep._runtime.door import Door
from lockstep._runtime.relay import Relay
from lockstep.errors import ArgumentError, UnsupportedError
from tests.runtime.jobs import eventually


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("d")
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


def test_only_this_user_can_enter_a_door(own_place: Path) -> None:
    with contextlib.closing(Door()) as own:
        assert os.stat(own.directory).st_mode & 0o777 == 0o700
        assert door.seen_through(own.directory) == own.token
        assert door.service_of(own.directory) == own.service
        os.chmod(own.directory, 0o755)
        assert door.seen_through(own.directory) is None
    assert list(own_place.iterdir()) == []


@pytest.mark.parametrize("said", [None, 1, "", "/", "/tmp", "lockstep-door-none", "/tmp/lockstep-door-\0", ["/tmp"]])
def test_what_is_no_door(said: Any) -> None:
    assert door.seen_through(said) is None


def test_a_link_is_no_door(own_place: Path) -> None:
    with contextlib.closing(Door()) as own:
        link = own_place / "lockstep-door-link"
        link.symlink_to(own.directory)
        assert door.seen_through(str(link)) is None


def test_machines_that_share_files_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(Door()) as own:
        monkeypatch.setattr(door, "_boot", lambda: b"another boot")
        assert door.seen_through(own.directory) != own.token


def test_doors_of_the_dead_are_removed(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, alive, other = Door(), Door(), own_place / "lockstep-door-without-token"
    other.mkdir()
    os.close(dead._lock)  # As the kernel does.
    Door().close()
    assert len(list(own_place.iterdir())) == 3, "it may be about to be locked"
    monkeypatch.setattr(door, "_NEW_SECONDS", -1.0)
    Door().close()
    assert {p.name for p in own_place.iterdir()} == {Path(alive.directory).name, other.name}
    alive.close()


def test_a_path_that_is_too_long_for_a_socket(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = own_place / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(OSError, match="too long"):
        Door()
    assert list(deep.iterdir()) == []


@contextlib.contextmanager
def relayed(first: bytes = b"") -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets with a relay between them."""
    (near, a), (far, b) = socket.socketpair(), socket.socketpair()
    Relay().add(a, b, first)
    with near, far:
        for s in (near, far):
            s.settimeout(10)
        yield near, far


def test_a_relay_passes_on_what_came_before() -> None:
    with relayed(b"already read") as (near, far):
        far.sendall(b", and more")
        far.shutdown(socket.SHUT_WR)
        assert near.makefile("rb").read() == b"already read, and more"


def test_a_relay_passes_much_on_in_both_directions_to_slow_readers() -> None:
    data = os.urandom(8 << 20)
    with relayed() as (near, far):
        senders = [threading.Thread(target=s.sendall, args=(data,)) for s in (near, far)]
        for sender in senders:
            sender.start()
        for s in (near, far):
            with s.makefile("rb") as file:
                assert file.read(len(data)) == data
        for sender in senders:
            sender.join()


@pytest.mark.parametrize("ends", [0, 1])
def test_when_one_end_closes_so_does_the_other(ends: int) -> None:
    with relayed() as pair:
        pair[ends].close()
        assert pair[1 - ends].recv(1) == b""


def test_listeners_that_are_closed_let_nobody_in_and_keep_who_is() -> None:
    listeners = gloo.Listeners()
    with listeners.made_by(lambda: socket.create_server(("127.0.0.1", 0))) as server:
        address = server.getsockname()
        with socket.create_connection(address) as early, server.accept()[0] as accepted:
            listeners.close()
            early.sendall(b"x")
            assert accepted.recv(1) == b"x"
            late = socket.socket()
            late.settimeout(0.5)
            with late, pytest.raises(TimeoutError):
                late.connect(address)


def test_listeners_may_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_CLOSE_COLLECTIVES", "0")
    listeners = gloo.Listeners()
    with listeners.made_by(lambda: socket.create_server(("127.0.0.1", 0))) as server:
        listeners.close()
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_looking_for_listeners_leaves_no_descriptor_open() -> None:
    with open(os.devnull), socket.create_server(("127.0.0.1", 0)):
        before = len(os.listdir("/proc/self/fd"))
        gloo.Listeners().made_by(lambda: None)
        assert len(os.listdir("/proc/self/fd")) == before


def test_gloo_listens_where_the_cluster_says_if_that_is_here() -> None:
    assert gloo.own_address("127.0.0.1", "10.0.0.1") == "127.0.0.1"
    assert gloo.own_address("::1", "10.0.0.1") == "::1"
    assert gloo.own_address("203.0.113.7", "10.0.0.1") == "10.0.0.1"
    assert gloo.own_address(None, "10.0.0.1") == "10.0.0.1"


def initialize_of_a_newer_jax(
    mtls_cert_file: str | None = None, mtls_key_file: str | None = None, mtls_ca_file: str | None = None
) -> None: ...


def set_certificates(monkeypatch: pytest.MonkeyPatch, directory: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, argument in (("CERT", "mtls_cert_file"), ("KEY", "mtls_key_file"), ("CA", "mtls_ca_file")):
        path = directory / name
        path.write_text("PEM")
        monkeypatch.setenv(f"LOCKSTEP_MTLS_{name}", str(path))
        found[argument] = str(path)
    return found


def test_certificates_go_to_jax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert mtls.arguments(initialize_of_a_newer_jax) == {}
    paths = set_certificates(monkeypatch, tmp_path)
    assert mtls.arguments(initialize_of_a_newer_jax) == paths


def test_certificates_that_jax_cannot_use_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_certificates(monkeypatch, tmp_path)
    with pytest.raises(UnsupportedError, match="need a jax whose coordination service can use certificates"):
        mtls.arguments(lambda coordinator_address=None: None)


def test_certificates_come_in_threes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_certificates(monkeypatch, tmp_path)
    (tmp_path / "KEY").unlink()
    with pytest.raises(ArgumentError, match=r"LOCKSTEP_MTLS_KEY=.*, which is no file"):
        mtls.files()
    monkeypatch.delenv("LOCKSTEP_MTLS_KEY")
    with pytest.raises(ArgumentError, match="LOCKSTEP_MTLS_KEY=None"):
        mtls.files()


def test_a_relay_survives_who_resets(own_place: Path) -> None:
    """The next pair is served as ever."""
    relay = Relay()
    pairs = []
    for _ in range(3):
        (near, a), (far, b) = socket.socketpair(), socket.socketpair()
        relay.add(a, b)
        pairs.append((near, far))
    pairs[0][0].close()
    pairs[0][1].close()
    pairs[1][0].sendall(b"x" * 100_000)
    pairs[1][1].close()
    near, far = pairs[2]
    near.sendall(b"ping")
    far.settimeout(10)
    assert far.recv(4) == b"ping"
    eventually(lambda: len(relay._selector.get_map()) == 3, lambda: "the others are forgotten")
    for s in (pairs[1][0], near, far):
        s.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_forked_process_has_no_part_in_a_relay(own_place: Path) -> None:
    """Nor does it keep a pair open when its parent has gone."""
    relay = Relay()
    (near, a), (far, b) = socket.socketpair(), socket.socketpair()
    with near, far:
        relay.add(a, b)
        near.sendall(b"ping")
        assert far.recv(4) == b"ping"
        pid = os.fork()
        if pid == 0:
            is_closed = a.fileno() == b.fileno() == -1
            os._exit(0 if is_closed else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        far.sendall(b"pong")
        assert near.recv(4) == b"pong", "the parent's pair is as it was"
