"""Where jax's service listens: doors that only this user can enter."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep._engine.runtime import authentication, gloo, unix_sockets
from lockstep._engine.runtime.unix_sockets import SocketDir
from lockstep.errors import ArgumentError, UnsupportedError


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("d")
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


def test_only_this_user_can_enter_a_door(own_place: Path) -> None:
    with contextlib.closing(SocketDir()) as own:
        assert os.stat(own.directory).st_mode & 0o777 == 0o700
        assert unix_sockets.read_token(own.directory) == own.token
        assert unix_sockets.service_path(own.directory) == own.service
        os.chmod(own.directory, 0o755)
        assert unix_sockets.read_token(own.directory) is None
    assert list(own_place.iterdir()) == []


@pytest.mark.parametrize("said", [None, 1, "", "/", "/tmp", "lockstep-door-none", "/tmp/lockstep-door-\0", ["/tmp"]])
def test_what_is_no_door(said: Any) -> None:
    assert unix_sockets.read_token(said) is None


def test_a_link_is_no_door(own_place: Path) -> None:
    with contextlib.closing(SocketDir()) as own:
        link = own_place / "lockstep-door-link"
        link.symlink_to(own.directory)
        assert unix_sockets.read_token(str(link)) is None


def test_machines_that_share_files_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(SocketDir()) as own:
        monkeypatch.setattr(unix_sockets, "_boot", lambda: b"another boot")
        assert unix_sockets.read_token(own.directory) != own.token


def test_doors_of_the_dead_are_removed(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, alive, other = SocketDir(), SocketDir(), own_place / "lockstep-door-without-token"
    other.mkdir()
    os.close(dead._lock)  # As the kernel does.
    SocketDir().close()
    assert len(list(own_place.iterdir())) == 3, "it may be about to be locked"
    monkeypatch.setattr(unix_sockets, "_NEW_SECONDS", -1.0)
    SocketDir().close()
    assert {p.name for p in own_place.iterdir()} == {Path(alive.directory).name, other.name}
    alive.close()


_ODD = st.text(st.sampled_from("%#?&=+ 4A1~'\"\\:;äß漢\t\n."), min_size=1, max_size=40)


@given(name=st.one_of(_ODD, st.just("%41"), st.just("a#b"), st.just("a?b"), st.just("x" * 200)))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_door_may_be_in_a_directory_of_any_name(own_place: Path, name: str) -> None:
    """gRPC, too, finds it: its addresses are URIs."""
    odd = own_place / f"_{name}_"
    odd.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(odd))
        with contextlib.closing(SocketDir()) as own, socket.socket(socket.AF_UNIX) as server:
            server.bind(own.service)
            server.listen()
            assert os.listdir(odd) == [os.path.basename(own.directory)]
            assert sorted(os.listdir(own.directory)) == ["service", "token"]
            assert re.fullmatch(r"/proc/self/fd/\d+/service", own.service)
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(unix_sockets.service_path(own.directory))


def test_where_directories_have_no_descriptors_an_odd_path_is_refused(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "_DESCRIPTORS", "/nowhere")
    with contextlib.closing(SocketDir()) as own:
        assert own.service == os.path.join(own.directory, "service")
    for name in ("x" * 100, "a%41", "a#", "a?"):
        odd = own_place / name
        odd.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(odd))
        with pytest.raises(OSError, match=r"none of '%#\?'.*set TMPDIR to another directory"):
            SocketDir()
        assert list(odd.iterdir()) == []


def test_listeners_that_are_closed_let_nobody_in_and_keep_who_is() -> None:
    listeners = gloo.Listeners()
    with listeners.record(lambda: socket.create_server(("127.0.0.1", 0))) as server:
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
    with listeners.record(lambda: socket.create_server(("127.0.0.1", 0))) as server:
        listeners.close()
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_looking_for_listeners_leaves_no_descriptor_open() -> None:
    with open(os.devnull), socket.create_server(("127.0.0.1", 0)):
        before = len(os.listdir("/proc/self/fd"))
        gloo.Listeners().record(lambda: None)
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
    assert authentication.mtls_arguments(initialize_of_a_newer_jax) == {}
    paths = set_certificates(monkeypatch, tmp_path)
    assert authentication.mtls_arguments(initialize_of_a_newer_jax) == paths


def test_certificates_that_jax_cannot_use_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_certificates(monkeypatch, tmp_path)
    with pytest.raises(UnsupportedError, match="need a jax whose coordination service can use certificates"):
        authentication.mtls_arguments(lambda coordinator_address=None: None)


def test_certificates_come_in_threes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_certificates(monkeypatch, tmp_path)
    (tmp_path / "KEY").unlink()
    with pytest.raises(ArgumentError, match=r"LOCKSTEP_MTLS_KEY=.*, which is no file"):
        authentication.mtls_arguments(initialize_of_a_newer_jax)
    monkeypatch.delenv("LOCKSTEP_MTLS_KEY")
    with pytest.raises(ArgumentError, match="LOCKSTEP_MTLS_KEY=None"):
        authentication.mtls_arguments(initialize_of_a_newer_jax)
