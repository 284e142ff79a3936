"""Arrival, with real sockets: the first task as a thread here, the others as threads or as bytes on a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.runtime import addresses as addressing
from lockstep._engine.runtime import authenticated_listener, authentication, limits, rendezvous_client
from lockstep._engine.runtime.authenticated_listener import AuthenticatedListener
from lockstep._engine.runtime.authentication import CALLER, LISTENER, Secret, Session
from lockstep._engine.runtime.join import _disagreement
from lockstep._engine.runtime.rendezvous import LateJoinServer, RendezvousServer, Roster
from lockstep._engine.runtime.rendezvous_client import Admission, RendezvousClient
from lockstep._engine.runtime.unix_sockets import SocketDir
from lockstep.errors import JoinError, LockstepError, MismatchError, MissingTaskError, PeerError
from tests.engine.runtime.jobs import addresses, eventually
from tests.engine.runtime.properties import steady

PATIENCE = 10.0


def roll_of(count: int) -> Roster:
    return Roster(tuple(f"worker {i}" for i in range(count)), tuple(addresses(count)))


def hello(roll: Roster, index: int, **more: Any) -> dict[str, Any]:
    return {"task": f"worker {index}", "cluster": {"worker": list(roll.addresses)}, "versions": {"jax": "1"}, **more}


NO_SECRET = Secret()
A_SECRET, ANOTHER = Secret(b"the secret of this cluster"), Secret(b"that of another cluster")


def greet(sock: socket.socket, secret: Secret = NO_SECRET) -> Session:
    """What a task and the first one say before anything else."""
    mine = authentication.new_nonce()
    sock.sendall(authentication.nonce_line(mine))
    theirs = authentication.parse_nonce_line(authentication.LineReader(sock).read())
    assert theirs is not None
    return Session(secret, mine, theirs["nonce"])


def introduce(sock: socket.socket, secret: Secret = NO_SECRET) -> Session:
    """Exchanges greetings and proofs, as a task."""
    session = greet(sock, secret)
    sock.sendall(session.sign(CALLER, {}))
    assert session.verify(LISTENER, authentication.LineReader(sock).read()) is not None
    return session


class Arrival:
    """A first task that collects, and others that report, each on a thread."""

    def __init__(
        self, roll: Roster, seconds: float = PATIENCE, secret: Secret = NO_SECRET, door: SocketDir | None = None
    ) -> None:
        self.roll = roll
        self._threads = ThreadPoolExecutor(8)
        self.secret = secret
        self.host = RendezvousServer(roll, hello(roll, 0), _disagreement, secret, door, seconds)
        self.collected: Future[AuthenticatedListener] = self._threads.submit(self.host.collect)

    def report(
        self, index: int, seconds: float = PATIENCE, secret: Secret | None = None, attempt: int = 0, **more: Any
    ) -> Future[Admission]:
        roll = replace(self.roll, attempt=attempt)
        reporter = RendezvousClient(roll, index, hello(self.roll, index, **more), secret or self.secret)
        return self._threads.submit(reporter.report, seconds)

    def say(self, sock: socket.socket, said: dict[str, Any]) -> Session:
        """Greets, and sends a hello."""
        session = introduce(sock, self.secret)
        sock.sendall(session.sign("hello", said))
        return session

    def connect(self) -> socket.socket:
        host, port = addressing.split(self.roll.addresses[0])
        return socket.create_connection((host, port), timeout=PATIENCE)

    def has_arrived(self, index: int) -> bool:
        return index in self.host._hellos

    def close(self) -> None:
        self._threads.shutdown()
        self.host.close()
        if not self.collected.exception():
            self.collected.result().close()


@contextlib.contextmanager
def arrival(
    count: int, seconds: float = PATIENCE, secret: Secret = NO_SECRET, door: SocketDir | None = None
) -> Iterator[Arrival]:
    found = Arrival(roll_of(count), seconds, secret, door)
    try:
        yield found
    finally:
        found.close()


def error_of(future: Future[Any]) -> BaseException | None:
    return future.exception(PATIENCE)


def assert_all_join(here: Arrival, *others: Future[Admission]) -> None:
    here.collected.result(PATIENCE)
    assert not any(f.done() for f in others), "nobody goes on before the release"
    here.host.release(service="near")
    for future in others:
        assert future.result(PATIENCE).verdict["service"] == "near"


def test_all_go_on_when_all_have_arrived() -> None:
    with arrival(4) as here:
        assert_all_join(here, *(here.report(i) for i in (3, 1, 2)))


def test_the_address_is_free_when_the_gate_is_closed() -> None:
    with arrival(2) as here:
        other = here.report(1)
        here.collected.result(PATIENCE).close()
        socket.create_server(addressing.split(here.roll.addresses[0])).close()
        here.host.release()
        other.result(PATIENCE)


def test_a_task_may_come_before_the_first() -> None:
    roll = roll_of(2)
    with ThreadPoolExecutor() as threads:
        early = threads.submit(RendezvousClient(roll, 1, hello(roll, 1)).report, PATIENCE)
        host = RendezvousServer(roll, hello(roll, 0), _disagreement, seconds=PATIENCE)
        host.collect().close()
        host.release()
        early.result(PATIENCE)


def test_an_ipv6_address() -> None:
    v4 = roll_of(2)
    roll = Roster(v4.names, tuple(a.replace("127.0.0.1", "[::1]") for a in v4.addresses))
    host = RendezvousServer(roll, hello(roll, 0), _disagreement, seconds=PATIENCE)
    with ThreadPoolExecutor() as threads:
        other = threads.submit(RendezvousClient(roll, 1, hello(roll, 1)).report, PATIENCE)
        host.collect().close()
        host.release()
        assert other.result(PATIENCE).ip == "::1"


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
        roll = Roster((*here.roll.names, "worker 3"), (*here.roll.addresses, "127.0.0.1:9"))
        reporter = RendezvousClient(roll, 3, {**hello(here.roll, 3), "cluster": larger})
        stranger = here._threads.submit(reporter.report, PATIENCE)
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
            here.say(dying, hello(here.roll, 1, process=1, generation=0))
            eventually(lambda: here.has_arrived(1), lambda: "arrival")
        eventually(lambda: not here.has_arrived(1), lambda: "its end is noticed")
        assert_all_join(here, here.report(1), here.report(2))


def test_a_task_that_died_while_it_waited_is_missing() -> None:
    with arrival(3, seconds=1) as here:
        with contextlib.closing(here.connect()) as dying:
            here.say(dying, hello(here.roll, 1, process=1, generation=0))
            eventually(lambda: here.has_arrived(1), lambda: "arrival")
        assert f"Missing: {here.roll.describe([1, 2])}" in str(error_of(here.collected))


def test_what_an_arrived_task_goes_on_saying_is_ignored() -> None:
    with arrival(3) as here, contextlib.closing(here.connect()) as chatty:
        session = here.say(chatty, hello(here.roll, 1, process=1, generation=0))
        eventually(lambda: here.has_arrived(1), lambda: "arrival")
        chatty.sendall(b"and another thing\n" * 1000)
        assert_all_join(here, here.report(2))
        verdict = authentication.LineReader(chatty).read()
        assert session.verify("answer", verdict) == {"go": True, "service": "near"}


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


# What no task says of itself, part by part; `...` stands for a part that is left out.
_WRONG_PARTS: dict[str, list[Any]] = {
    "process": [..., None, True, False, 0, -1, 1.0, "1", [1], {}, 1 << 40],
    "generation": [..., None, True, -1, 0.0, "0", []],
    "task": [..., None, 1, ["worker 1"], {}],
    "cluster": [..., None, [], "worker", 1, True],
    "versions": [..., None, [], "1", 1.5],
}
_WRONG = [(part, value) for part, values in _WRONG_PARTS.items() for value in values]


def _wrong_hello(roll: Roster, part: str, value: Any) -> dict[str, Any]:
    said = hello(roll, 1, process=1, generation=0)
    return {k: v for k, v in {**said, part: value}.items() if v is not ...}


def test_whoever_does_not_speak_as_a_task_is_none() -> None:
    with arrival(2) as here, contextlib.ExitStack() as held:
        for wrong in _WRONG:
            sock = held.enter_context(contextlib.closing(here.connect()))
            here.say(sock, _wrong_hello(here.roll, *wrong))
            assert sock.recv(100) == b"", f"{wrong} was answered"
        assert_all_join(here, here.report(1))


_LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5)
_JSON = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
_ROLL = Roster(("worker 0", "worker 1"), ("a:1", "b:1"))
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
            b"x" * (authentication.LINE_BYTES + 10),
            authentication.nonce_line("0" * 32) * 2,
            authentication.line({"lockstep": 2, "nonce": "Z" * 32}),
            authentication.line({"lockstep": True, "nonce": "0" * 32}),
            authentication.line({"says": "{}", "proof": ""}),
            authentication.line({"says": "[" * 50_000, "proof": ""}),
            b"\xff\xfe\n",
            b"\n\n\n",
        ]
    ),
)


@settings(steady, max_examples=60)
@given(st.lists(st.tuples(_BYTES, st.booleans(), st.booleans()), max_size=6), st.sampled_from([NO_SECRET, A_SECRET]))
def test_strangers_do_no_harm(strangers: list[tuple[bytes, bool, bool]], secret: Secret) -> None:
    """Whatever comes, with a greeting or without, and whether it then hangs up or holds on: who belongs here joins."""
    with arrival(2, secret=secret) as here, contextlib.ExitStack() as held:
        for data, greets, holds_on in strangers:
            sock = held.enter_context(contextlib.closing(here.connect()))
            with contextlib.suppress(OSError):  # The first task need not listen to the end.
                if greets:
                    session = greet(sock)
                    if not secret.is_set:  # Without a secret everybody's proof is right.
                        sock.sendall(session.sign(CALLER, {}))
                        authentication.LineReader(sock).read()
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
    monkeypatch.setattr(authenticated_listener, "_MAX_UNAUTHENTICATED", 5)
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
        RendezvousClient(roll, 1, hello(roll, 1)).report(0.5)
    assert time.monotonic() - began < 3
    assert f"Arrived: {roll.describe([1])}. Missing: {roll.describe([0])}" in str(error.value)
    assert "Connection refused" in str(error.value)


def _answered_by(answer: Callable[[socket.socket], None], seconds: float = 1.0, secret: Secret = NO_SECRET) -> None:
    """Reports to something that is not a first task."""
    roll = roll_of(2)
    host, port = addressing.split(roll.addresses[0])
    with socket.create_server((host, port)) as server, ThreadPoolExecutor() as threads:
        told = threads.submit(RendezvousClient(roll, 1, hello(roll, 1), secret).report, seconds)
        sock, _ = server.accept()
        sock.settimeout(PATIENCE)
        with sock:
            answer(sock)
            told.result(PATIENCE)


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[]\n", b"\xff\n", b"x" * (1 << 19)])
def test_something_else_answers(data: bytes) -> None:
    def answer(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

    with pytest.raises(PeerError, match="something else answers at its address"):
        _answered_by(answer)


def test_something_else_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_client, "GRACE_SECONDS", 0.1)
    with pytest.raises(MissingTaskError, match="does not answer"):
        _answered_by(lambda sock: None, seconds=0.3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("MismatchError", MismatchError), ("MissingTaskError", MissingTaskError), ("SystemExit", JoinError)],
)
def test_the_verdict_is_an_error_of_ours(name: str, kind: type[LockstepError]) -> None:
    with pytest.raises(kind, match=r"(?m)^because$"):
        _answered_by(lambda sock: sock.sendall(_greet_back(sock).sign("answer", {"error": name, "message": "because"})))


def _greet_back(sock: socket.socket, secret: Secret = NO_SECRET, claims: bool | None = None) -> Session:
    """What the first task says to a greeting, up to a hello."""
    theirs = authentication.parse_nonce_line(authentication.LineReader(sock).read())
    assert theirs is not None
    mine = authentication.new_nonce()
    sock.sendall(authentication.nonce_line(mine, secret=secret.is_set if claims is None else claims))
    session = Session(secret, theirs["nonce"], mine)
    authentication.LineReader(sock).read()
    sock.sendall(session.sign(LISTENER, {}))
    authentication.LineReader(sock).read()
    return session


def test_who_hangs_up_on_a_greeting_is_asked_again() -> None:
    """It may be a first task that ends, before its successor starts; or be flooded."""
    roll = roll_of(2)
    with (
        contextlib.closing(socket.create_server(addressing.split(roll.addresses[0]))) as first,
        ThreadPoolExecutor() as t,
    ):
        told = t.submit(RendezvousClient(roll, 1, hello(roll, 1)).report, PATIENCE)
        first.accept()[0].close()
        first.close()
        host = RendezvousServer(roll, hello(roll, 0), _disagreement, seconds=PATIENCE)
        host.collect().close()
        host.release()
        told.result(PATIENCE)


def test_with_a_secret_all_join() -> None:
    with arrival(3, secret=A_SECRET) as here:
        assert_all_join(here, here.report(1), here.report(2))


@pytest.mark.parametrize(
    ("theirs", "mine", "told"),
    [
        (A_SECRET, ANOTHER, "does not know the one that this task has"),
        (A_SECRET, NO_SECRET, "demands one, and this task has none"),
        (NO_SECRET, A_SECRET, "has none"),
    ],
)
def test_another_secret_is_refused_and_changes_nothing(
    theirs: Secret, mine: Secret, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with arrival(2, secret=theirs) as here:
        for _ in range(3):
            error = error_of(here.report(1, secret=mine))
            assert isinstance(error, JoinError), error
            assert "All tasks of a cluster must have the same secret, or none." in str(error)
            assert told in str(error)
        assert not here.collected.done()
        assert_all_join(here, here.report(1))
    refusals = [r.getMessage() for r in caplog.records if "was refused" in r.getMessage()]
    assert len(refusals) == (mine is ANOTHER), "once of each address"
    assert all("127.0.0.1 was refused at the address of worker 0: it does not know the secret" in r for r in refusals)


def test_what_was_heard_before_proves_nothing() -> None:
    """A proof and a hello of a task, word for word, on connections of strangers."""
    with arrival(3, secret=A_SECRET) as here, contextlib.ExitStack() as held:
        first, stranger, another = (held.enter_context(contextlib.closing(here.connect())) for _ in range(3))
        session = greet(first, A_SECRET)
        proof, said = session.sign(CALLER, {}), session.sign("hello", hello(here.roll, 1, process=1, generation=0))
        for sock, overheard in ((stranger, proof), (another, said)):
            greet(sock)
            sock.sendall(overheard)
            assert everything_from(sock) == authentication.line(authentication.REFUSED)
        assert not here.has_arrived(1)
        first.sendall(proof)
        assert session.verify(LISTENER, authentication.LineReader(first).read()) == {"door": None}
        first.sendall(said)
        eventually(lambda: here.has_arrived(1), lambda: "arrival")
        assert_all_join(here, here.report(2))


def everything_from(sock: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    with sock.makefile("rb") as file, contextlib.suppress(ConnectionError):
        return file.read()
    return b""


@pytest.mark.parametrize(
    "said",
    [
        authentication.line({"says": "{}", "proof": "0" * 64}),
        authentication.line({"says": "{}", "proof": ""}),
        authentication.line({"proof": None}),
        b"x" * 600,
        b"\n",
    ],
)
def test_a_stranger_gets_nothing_on_which_to_try_out_secrets(said: bytes) -> None:
    with arrival(2, secret=A_SECRET) as here:
        with contextlib.closing(here.connect()) as sock:
            sock.sendall(authentication.nonce_line("0" * 32))
            greeting = sock.recv(1000)
            sock.sendall(said)
            received = greeting + everything_from(sock)
        assert b"proof" not in received, received
        known = {"lockstep", "nonce", "secret"}
        assert set(json.loads(greeting)) == known, "nothing that depends on the secret, or on this machine"
        assert_all_join(here, here.report(1))


def test_a_false_listener_is_told_nothing_of_the_cluster() -> None:
    """It gets one proof, over nonces alone: without one a task could not show that it belongs here."""
    heard = b""

    def answer(sock: socket.socket) -> None:
        nonlocal heard
        lines = authentication.LineReader(sock)
        heard += lines.read()
        sock.sendall(authentication.nonce_line("1" * 32, secret=True))
        heard += lines.read()
        sock.sendall(Session(ANOTHER, "0" * 32, "1" * 32).sign(LISTENER, {}))
        heard += everything_from(sock)

    with pytest.raises(JoinError, match="does not know the one that this task has"):
        _answered_by(answer, secret=A_SECRET)
    greeting, proof = (json.loads(line) for line in heard.splitlines())
    assert set(greeting) == {"lockstep", "nonce"}
    assert proof == json.loads(Session(A_SECRET, greeting["nonce"], "1" * 32).sign(CALLER, {}))


def test_while_tasks_are_missing_all_say_who(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(limits, "_REPORT_SECONDS", 0.2)
    with arrival(3, seconds=30) as here:
        other = here.report(2)
        eventually(lambda: here.has_arrived(2), lambda: "arrival")
        text = f"Arrived: {here.roll.describe([0, 2])}. Missing: {here.roll.describe([1])}. Waited 0 of "
        # The first task's own, and what the other one has been told.
        eventually(
            lambda: (
                {"30 s (LOCKSTEP_JOIN_TIMEOUT).", "10 s (LOCKSTEP_JOIN_TIMEOUT)."}
                <= {line.removeprefix(text) for line in caplog.messages}
            ),
            lambda: caplog.text,
        )
        assert_all_join(here, other, here.report(1))


def test_a_task_that_cannot_reach_the_first_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "_REPORT_SECONDS", 0.2)
    roll = roll_of(2)
    with pytest.raises(MissingTaskError):
        RendezvousClient(roll, 1, hello(roll, 1)).report(0.7)
    assert 1 <= len(caplog.messages) <= 3, "one in each period"
    for line in caplog.messages:
        assert line.startswith(
            f"Arrived: {roll.describe([1])}. Missing: {roll.describe([0])}, to which all others report"
        )
        assert "127.0.0.1: Connection refused" in line


def test_a_report_names_the_first_of_many() -> None:
    roll = Roster(tuple(f"worker {i}" for i in range(1000)), ("a:1",) * 1000)
    assert roll.outline(list(range(1000))).endswith("worker 19 (a:1) and 980 more")
    assert roll.outline([3]) == "worker 3 (a:1)"


def test_a_word_of_one_kind_is_none_of_another() -> None:
    session = Session(A_SECRET, "1" * 32, "2" * 32)
    assert session.verify("hello", session.sign("hello", {"a": 1})) == {"a": 1}
    assert session.verify("answer", session.sign("hello", {"a": 1})) is None
    assert Session(A_SECRET, "2" * 32, "1" * 32).verify("hello", session.sign("hello", {"a": 1})) is None
    assert Session(ANOTHER, "1" * 32, "2" * 32).verify("hello", session.sign("hello", {"a": 1})) is None


@pytest.mark.parametrize("claims", [True, False])
def test_a_first_task_without_the_secret_is_not_believed(claims: bool) -> None:
    def answer(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(_greet_back(sock, NO_SECRET, claims).sign("answer", {"go": True, "service": "open"}))

    with pytest.raises(JoinError, match="All tasks of a cluster must have the same secret"):
        _answered_by(answer, secret=A_SECRET)


@pytest.mark.parametrize(("theirs", "which"), [(2, "given up: end it"), (4, "a later attempt: end this one first")])
def test_a_task_of_another_attempt_is_refused(theirs: int, which: str) -> None:
    roll = replace(roll_of(2), attempt=3)
    found = Arrival(roll)
    with contextlib.closing(found) as here:
        error = error_of(here.report(1, attempt=theirs))
        assert isinstance(error, JoinError)
        assert f"worker 1 belongs to attempt {theirs}, {roll.describe([0])} to attempt 3." in str(error)
        assert which in str(error)
        assert_all_join(here, here.report(1, attempt=3))


def test_who_is_slow_is_dropped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(authenticated_listener, "_UNAUTHENTICATED_SECONDS", 0.2)
    with arrival(2) as here, contextlib.closing(here.connect()) as slow:
        slow.sendall(b"{")
        assert slow.recv(1) == b""
        assert_all_join(here, here.report(1))
    assert "127.0.0.1 was refused at the address of worker 0: it was too slow" in caplog.text


def test_all_strangers_together_have_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticated_listener, "_UNAUTHENTICATED_BYTES", 300_000)
    with arrival(2) as here, contextlib.ExitStack() as held:
        socks = [held.enter_context(contextlib.closing(here.connect())) for _ in range(4)]
        for sock in socks:
            introduce(sock)
            sock.sendall(b"x" * 200_000)
        with contextlib.suppress(ConnectionResetError):
            assert socks[0].recv(1) == b"", "the oldest was hung up on"
        assert_all_join(here, here.report(1))


def test_who_is_on_this_machine_is_known() -> None:
    with contextlib.closing(SocketDir()) as door, arrival(3, door=door) as here:
        assert_all_join(here, here.report(1), here.report(2))
        assert here.host.are_all_local


def test_who_only_says_that_it_is_near_is_not() -> None:
    with (
        contextlib.closing(SocketDir()) as door,
        arrival(2, door=door) as here,
        contextlib.closing(here.connect()) as sock,
    ):
        here.say(sock, hello(here.roll, 1, process=1, generation=0, sees="0" * 64))
        here.collected.result(PATIENCE)
        assert not here.host.are_all_local


class _Entrance:
    """Takes every connection; knows one stream."""

    def __init__(self) -> None:
        self.taken: list[socket.socket] = []

    def admits(self, hello: Mapping[str, Any]) -> bool:
        return hello["stream"] == "known" or not hello["resumes"]

    def take(self, link: socket.socket, hello: Mapping[str, Any]) -> None:
        self.taken.append(link)


class Kept:
    """A cluster of two that has started; its first task stays at its address."""

    def __init__(self, held: contextlib.ExitStack, secret: Secret = NO_SECRET) -> None:
        self.here = held.enter_context(arrival(2, secret=secret))
        assert_all_join(self.here, self.here.report(1))
        entrance = _Entrance()
        self.let_in = entrance.taken
        keeper = LateJoinServer(self.here.collected.result(), self.here.roll, entrance)
        self.is_over = False
        held.enter_context(contextlib.closing(self))
        self._thread = ThreadPoolExecutor(1)
        self._served = self._thread.submit(self._serve, keeper)

    def _serve(self, keeper: LateJoinServer) -> None:
        while not self.is_over:
            keeper._listener.listen(0.05)

    def close(self) -> None:
        self.is_over = True
        self._served.result(PATIENCE)
        self._thread.shutdown()
        for sock in self.let_in:
            sock.close()


def test_who_comes_late_is_told_that_the_cluster_runs() -> None:
    with contextlib.ExitStack() as held:
        kept = Kept(held)
        error = error_of(kept.here.report(1))
        assert isinstance(error, JoinError)
        assert "The cluster runs already, with another process as worker 1" in str(error)
        error = error_of(kept.here.report(1, attempt=1))
        assert "worker 1 belongs to attempt 1" in str(error)
        assert not kept.let_in


def reporter(kept: Kept, secret: Secret) -> RendezvousClient:
    """Of a task that has reported."""
    roll = kept.here.roll
    made = RendezvousClient(roll, 1, hello(roll, 1), secret)
    made._reached = endpoint_of(roll)
    return made


def endpoint_of(roll: Roster) -> addressing.Endpoint:
    return addressing.Endpoint(socket.AF_INET, addressing.split(roll.addresses[0]))


def test_the_service_is_for_those_who_know_the_secret() -> None:
    with contextlib.ExitStack() as held:
        kept = Kept(held, A_SECRET)
        with pytest.raises(JoinError, match="must have the same secret"):
            reporter(kept, ANOTHER).reach_service(PATIENCE, "new", resumes=False)
        assert not kept.let_in
        sock, rest = reporter(kept, A_SECRET).reach_service(PATIENCE, "new", resumes=False)
        held.enter_context(sock)
        assert rest == b""
        eventually(lambda: kept.let_in, lambda: "it is let in")
        kept.let_in[0].sendall(b"hello")
        assert sock.recv(5) == b"hello"


def test_a_stream_is_resumed_only_where_it_is_known() -> None:
    with contextlib.ExitStack() as held:
        kept = Kept(held)
        with pytest.raises(JoinError, match="The cluster runs already"):
            reporter(kept, NO_SECRET).reach_service(PATIENCE, "unknown", resumes=True)
        held.enter_context(reporter(kept, NO_SECRET).reach_service(PATIENCE, "known", resumes=True)[0])
        eventually(lambda: kept.let_in, lambda: "it is let in")


def test_a_first_task_that_starts_again_does_not_take_a_stream_for_an_arrival() -> None:
    with arrival(2) as here:
        lost = RendezvousClient(here.roll, 1, hello(here.roll, 1))
        lost._reached = endpoint_of(here.roll)
        with pytest.raises(JoinError, match="a cluster starts anew"):
            lost.reach_service(PATIENCE, "known", resumes=True)
        assert_all_join(here, here.report(1))
