"""Arrival, with real sockets: the first task as a thread here, the others as threads or as bytes on a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._runtime import rendezvous
from lockstep._runtime.join import _disagreement
from lockstep._runtime.rendezvous import Host, Roll, report
from lockstep.errors import JoinError, LockstepError, MismatchError, MissingTaskError, PeerError
from tests.runtime.jobs import addresses, eventually
from tests.runtime.properties import steady

PATIENCE = 10.0


def roll_of(count: int) -> Roll:
    return Roll(tuple(f"worker {i}" for i in range(count)), tuple(addresses(count)))


def hello(roll: Roll, index: int, **more: Any) -> dict[str, Any]:
    return {"task": f"worker {index}", "cluster": {"worker": list(roll.addresses)}, "versions": {"jax": "1"}, **more}


class Arrival:
    """A first task that collects, and others that report, each on a thread."""

    def __init__(self, roll: Roll, seconds: float = PATIENCE) -> None:
        self.roll = roll
        self._threads = ThreadPoolExecutor(8)
        self.host = Host(roll, hello(roll, 0), _disagreement)
        self.collected = self._threads.submit(self.host.collect, seconds)

    def report(self, index: int, seconds: float = PATIENCE, **more: Any) -> Future[None]:
        return self._threads.submit(report, self.roll, index, hello(self.roll, index, **more), seconds)

    def connect(self) -> socket.socket:
        host, port = rendezvous.addresses.split(self.roll.addresses[0])
        return socket.create_connection((host, port), timeout=PATIENCE)

    def has_arrived(self, index: int) -> bool:
        return index in self.host._hellos

    def close(self) -> None:
        self._threads.shutdown()
        self.host.close()


@contextlib.contextmanager
def arrival(count: int, seconds: float = PATIENCE) -> Iterator[Arrival]:
    found = Arrival(roll_of(count), seconds)
    try:
        yield found
    finally:
        found.close()


def error_of(future: Future[None]) -> BaseException | None:
    return future.exception(PATIENCE)


def assert_all_join(here: Arrival, *others: Future[None]) -> None:
    here.collected.result(PATIENCE)
    assert not any(f.done() for f in others), "nobody goes on before the release"
    here.host.release()
    for future in others:
        future.result(PATIENCE)


def test_all_go_on_when_all_have_arrived() -> None:
    with arrival(4) as here:
        assert_all_join(here, *(here.report(i) for i in (3, 1, 2)))


def test_the_address_is_free_when_all_have_arrived() -> None:
    with arrival(2) as here:
        other = here.report(1)
        here.collected.result(PATIENCE)
        with contextlib.closing(rendezvous.addresses.listen(here.roll.addresses[0], "worker 0")):
            pass
        here.host.release()
        other.result(PATIENCE)


def test_a_task_may_come_before_the_first() -> None:
    roll = roll_of(2)
    with ThreadPoolExecutor() as threads:
        early = threads.submit(report, roll, 1, hello(roll, 1), PATIENCE)
        host = Host(roll, hello(roll, 0), _disagreement)
        host.collect(PATIENCE)
        host.release()
        early.result(PATIENCE)


def test_an_ipv6_address() -> None:
    v4 = roll_of(2)
    roll = Roll(v4.names, tuple(a.replace("127.0.0.1", "[::1]") for a in v4.addresses))
    host = Host(roll, hello(roll, 0), _disagreement)
    with ThreadPoolExecutor() as threads:
        other = threads.submit(report, roll, 1, hello(roll, 1), PATIENCE)
        host.collect(PATIENCE)
        host.release()
        other.result(PATIENCE)


def test_whoever_arrived_learns_who_did_not() -> None:
    with arrival(4, seconds=0.5) as here:
        others = [here.report(1), here.report(3)]
        for error in map(error_of, [here.collected, *others]):
            assert isinstance(error, MissingTaskError)
            assert "within 0.5 s (LOCKSTEP_JOIN_TIMEOUT)" in str(error)
            assert f"Arrived: {here.roll.describe([0, 1, 3])}. Missing: {here.roll.describe([2])}." in str(error)


def test_a_difference_is_everybodys_error() -> None:
    with arrival(3) as here:
        futures = [here.report(1), here.report(2, versions={"jax": "2"}), here.collected]
        for error in map(error_of, futures):
            assert isinstance(error, MismatchError)
            assert 'same versions. worker 2: jax is "2", but "1" on worker 0' in str(error)


def test_a_task_of_a_larger_cluster() -> None:
    with arrival(3) as here:
        larger = {"worker": [*here.roll.addresses, "127.0.0.1:9"]}
        first = here.report(1)
        eventually(lambda: here.has_arrived(1), lambda: "arrival")
        stranger = here._threads.submit(report, here.roll, 3, {**hello(here.roll, 3), "cluster": larger}, PATIENCE)
        for error in map(error_of, [here.collected, first, stranger]):
            assert isinstance(error, MismatchError), error
            assert "worker 3: worker is" in str(error)


def test_a_task_of_a_smaller_cluster_when_the_rest_stays_away() -> None:
    with arrival(3, seconds=0.5) as here:
        smaller = {"worker": list(here.roll.addresses[:2])}
        for error in map(error_of, [here.collected, here.report(1, cluster=smaller)]):
            assert isinstance(error, MismatchError)
            assert "worker 1: worker is" in str(error)


def test_a_task_that_comes_twice_is_refused_and_the_first_goes_on() -> None:
    with arrival(3) as here:
        first = here.report(1)
        eventually(lambda: here.has_arrived(1), lambda: "arrival")
        error = error_of(here.report(1))
        assert isinstance(error, JoinError)
        assert f"{here.roll.describe([1])} has already arrived: this process has the same task" in str(error)
        assert_all_join(here, first, here.report(2))


def test_a_task_that_died_while_it_waited_may_come_again() -> None:
    with arrival(3) as here:
        with contextlib.closing(here.connect()) as dying:
            dying.sendall(_line(hello(here.roll, 1, lockstep=True, process=1)))
            eventually(lambda: here.has_arrived(1), lambda: "arrival")
        eventually(lambda: not here.has_arrived(1), lambda: "its end is noticed")
        assert_all_join(here, here.report(1), here.report(2))


def test_a_task_that_died_while_it_waited_is_missing() -> None:
    with arrival(3, seconds=1) as here:
        with contextlib.closing(here.connect()) as dying:
            dying.sendall(_line(hello(here.roll, 1, lockstep=True, process=1)))
            eventually(lambda: here.has_arrived(1), lambda: "arrival")
        assert f"Missing: {here.roll.describe([1, 2])}" in str(error_of(here.collected))


def test_what_an_arrived_task_goes_on_saying_is_ignored() -> None:
    with arrival(3) as here, contextlib.closing(here.connect()) as chatty:
        chatty.sendall(_line(hello(here.roll, 1, lockstep=True, process=1)))
        eventually(lambda: here.has_arrived(1), lambda: "arrival")
        chatty.sendall(b"and another thing\n" * 1000)
        assert_all_join(here, here.report(2))
        assert json.loads(chatty.makefile().readline()) == {"go": True}


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


# What no task says of itself, part by part; `...` stands for a part that is left out.
_WRONG_PARTS: dict[str, list[Any]] = {
    "lockstep": [..., None, False, 1, "true", [True]],
    "process": [..., None, True, False, 0, -1, 1.0, "1", [1], {}],
    "task": [..., None, 1, ["worker 1"], {}],
    "cluster": [..., None, [], "worker", 1, True],
    "versions": [..., None, [], "1", 1.5],
}
_WRONG = [(part, value) for part, values in _WRONG_PARTS.items() for value in values]


def _wrong_hello(roll: Roll, part: str, value: Any) -> dict[str, Any]:
    said = hello(roll, 1, lockstep=True, process=1)
    return {k: v for k, v in {**said, part: value}.items() if v is not ...}


def test_whoever_does_not_speak_as_a_task_is_none() -> None:
    with arrival(2) as here, contextlib.ExitStack() as held:
        for wrong in _WRONG:
            sock = held.enter_context(contextlib.closing(here.connect()))
            sock.sendall(_line(_wrong_hello(here.roll, *wrong)))
            assert sock.recv(100) == b"", f"{wrong} was answered"
        assert_all_join(here, here.report(1))


_LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5)
_JSON = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
_ROLL = Roll(("worker 0", "worker 1"), ("a:1", "b:1"))
_HELLO_LIKE = st.sampled_from(_WRONG).map(lambda wrong: _wrong_hello(_ROLL, *wrong))
_BYTES = st.one_of(
    st.binary(max_size=200),
    st.builds(_line, _HELLO_LIKE | _JSON),
    st.builds(lambda value: _line(value)[:-1], _HELLO_LIKE),
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"[" * 100_000 + b"\n",
            b"9" * 100_000 + b"\n",
            b"x" * (rendezvous._LINE_BYTES + 10),
            b"\xff\xfe\n",
            b"\n\n\n",
        ]
    ),
)


@settings(steady, max_examples=60)
@given(st.lists(st.tuples(_BYTES, st.booleans()), max_size=6))
def test_strangers_do_no_harm(strangers: list[tuple[bytes, bool]]) -> None:
    """Whatever comes, and whether it then hangs up or holds on: who belongs here joins."""
    with arrival(2) as here, contextlib.ExitStack() as held:
        for data, holds_on in strangers:
            sock = held.enter_context(contextlib.closing(here.connect()))
            with contextlib.suppress(OSError):  # The first task need not listen to the end.
                sock.sendall(data)
                if not holds_on:
                    sock.close()
        assert not here.collected.done()
        assert_all_join(here, here.report(1))


def test_a_line_without_end_is_not_kept() -> None:
    with arrival(2) as here, contextlib.closing(here.connect()) as stranger:
        with pytest.raises(OSError):
            for _ in range(1000):
                stranger.sendall(b"x" * 65536)
        assert_all_join(here, here.report(1))


def test_the_silent_are_dropped_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_MAX_STRANGERS", 5)
    with arrival(3) as here, contextlib.ExitStack() as held:
        first = here.report(1)
        eventually(lambda: here.has_arrived(1), lambda: "arrival")
        silent = [held.enter_context(contextlib.closing(here.connect())) for _ in range(20)]
        assert silent[0].recv(1) == b"", "the oldest was hung up on"
        assert_all_join(here, first, here.report(2))


def test_nobody_listens() -> None:
    roll = roll_of(2)
    began = time.monotonic()
    with pytest.raises(MissingTaskError) as error:
        report(roll, 1, hello(roll, 1), 0.5)
    assert time.monotonic() - began < 3
    assert f"Arrived: {roll.describe([1])}. Missing: {roll.describe([0])}" in str(error.value)
    assert "Connection refused" in str(error.value)


def _answered_by(answer: Callable[[socket.socket], None], seconds: float = 1.0) -> None:
    """Reports to something that is not a first task."""
    roll = roll_of(2)
    host, port = rendezvous.addresses.split(roll.addresses[0])
    with socket.create_server((host, port)) as server, ThreadPoolExecutor() as threads:
        told = threads.submit(report, roll, 1, hello(roll, 1), seconds)
        sock, _ = server.accept()
        with sock:
            answer(sock)
            told.result(PATIENCE)


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[]\n", b"\xff\n", b"x" * (1 << 19)])
def test_something_else_answers(data: bytes) -> None:
    def answer(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

    with pytest.raises(PeerError, match="something else answers at its address"):
        _answered_by(answer)


def test_something_else_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_GRACE_SECONDS", 0.1)
    with pytest.raises(MissingTaskError, match="does not answer"):
        _answered_by(lambda sock: None, seconds=0.3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("MismatchError", MismatchError), ("MissingTaskError", MissingTaskError), ("SystemExit", JoinError)],
)
def test_the_verdict_is_an_error_of_ours(name: str, kind: type[LockstepError]) -> None:
    with pytest.raises(kind, match=r"^because$"):
        _answered_by(lambda sock: sock.sendall(_line({"error": name, "message": "because"})))
