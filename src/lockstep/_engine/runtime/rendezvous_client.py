"""The other tasks' side of the rendezvous: reports to the first task, and waits for its verdict."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep._engine.runtime import addresses, authentication, unix_sockets
from lockstep._engine.runtime.addresses import Endpoint
from lockstep._engine.runtime.authentication import (
    CALLER,
    FILE_VARIABLE,
    LISTENER,
    VARIABLE,
    LineReader,
    Secret,
    Session,
)
from lockstep._engine.runtime.limits import Deadline
from lockstep._engine.runtime.rendezvous import GRACE_SECONDS, VERDICTS, Roster
from lockstep.errors import JoinError, LockstepError, MissingTaskError, PeerError

# For a connection: packets that are dropped are sent again after 1 and 3 seconds.
_CONNECT_SECONDS = 5.0
# For the answer to a nonce, where there are other addresses to try; the first task answers at once.
_ANSWER_SECONDS = 10.0
# A time limit of 0 would make a socket non-blocking.
_MIN_SECONDS = 0.01


@dataclass(frozen=True)
class Admission:
    """The first task's "go".

    Attributes:
        verdict: The whole message.
        ip: The address of this machine from which the first task is reached.
        reached: The address at which it is reached.
        directory: The path of the first task's socket directory.
    """

    verdict: Mapping[str, Any]
    ip: str
    reached: str
    directory: str

    @property
    def chief(self) -> str:
        """The first task's address as all tasks reach it."""
        ip = self.verdict.get("ip")
        return str(ip) if addresses.is_ip(ip) else self.reached

    @property
    def outside(self) -> str:
        """An address of this machine that other tasks can reach, of the family of the first task's, as Gloo demands."""
        if addresses.is_loopback(self.ip):
            return self.chief  # This task is on the first one's machine, and has its address.
        if addresses.is_same_family(self.ip, self.chief):
            return self.ip
        return addresses.local_address_towards(addresses.lookup(addresses.join_host(self.chief, 1))[0]) or self.ip


@dataclass(frozen=True)
class _Conversation:
    """A connection with the first task, after mutual authentication."""

    sock: socket.socket
    lines: LineReader
    session: Session
    directory: Any


class RendezvousClient:
    """Speaks with the first task."""

    def __init__(self, roster: Roster, process: int, hello: Mapping[str, Any], secret: Secret | None = None) -> None:
        self._roster = roster
        self._process = process
        self._hello = {**hello, "process": process, "generation": roster.attempt}
        self._secret = secret or Secret()
        # Where the first task was reached: the DNS may be out of reach when it must be reached again.
        self._reached: Endpoint | None = None

    def report(self, seconds: float, keep: Callable[[int, socket.socket], None] | None = None) -> Admission:
        """Reports, and returns when all tasks have arrived.

        Raises:
            AddressError: If the first task's name does not resolve.
            JoinError: If the first task does not receive this one: of another secret, of another attempt, or twice.
            MissingTaskError: If the first task cannot be reached, or somebody else is missing.
            MismatchError: If the tasks disagree about the cluster or the versions.
            PeerError: If the first task ends while this one waits.
        """
        deadline = Deadline(seconds)
        talk = self._connect(deadline)
        with contextlib.ExitStack() as ending:
            sock = ending.enter_context(talk.sock)
            token = unix_sockets.read_token(talk.directory)
            hello = self._hello | {"sees": token and talk.session.token_mac(token)}
            authentication.send(sock, talk.session.sign("hello", hello))
            verdict = self._verdict(talk, deadline)
            if keep is not None:
                keep(0, sock)
                ending.pop_all()
            return Admission(verdict, str(sock.getsockname()[0]), str(sock.getpeername()[0]), str(talk.directory))

    def reach_service(self, seconds: float, stream: str, resumes: bool) -> tuple[socket.socket, bytes]:
        """Connects to jax's service through the first task, in one attempt, after `report`.

        Raises:
            OSError: If the first task cannot be reached, or hangs up.
            MissingTaskError: If it does not answer.
            JoinError: If it does not receive this one, or does not know the stream.
            PeerError: If something else answers at its address.
        """
        assert self._reached is not None
        deadline = Deadline(seconds)
        talk = self._authenticate(self._reached, deadline, is_only=False)
        with contextlib.ExitStack() as failing:
            failing.callback(talk.sock.close)
            wanted = {"wants": "service", "stream": stream, "resumes": resumes}
            authentication.send(talk.sock, talk.session.sign("hello", self._hello | wanted))
            self._verdict(talk, deadline)
            failing.pop_all()
        talk.sock.settimeout(seconds)
        return talk.sock, talk.lines.rest()

    def connect(self, seconds: float, **wanted: Any) -> tuple[socket.socket, dict[str, Any]]:
        """Connects to the first task of the roster, which may start later, and says what this one wants of it.

        Returns:
            The connection, and the answer.

        Raises:
            MissingTaskError: If it cannot be reached within `seconds`.
            JoinError: If it does not receive this one.
            PeerError: If something else answers, or it hangs up.
        """
        deadline = Deadline(seconds)
        talk = self._connect(deadline)
        with contextlib.ExitStack() as failing:
            failing.callback(talk.sock.close)
            authentication.send(talk.sock, talk.session.sign("hello", self._hello | wanted))
            verdict = self._verdict(talk, deadline)
            if talk.lines.rest():
                raise PeerError(self._gone())  # It speaks when it is spoken to.
            failing.pop_all()
        return talk.sock, verdict

    def _connect(self, deadline: Deadline) -> _Conversation:
        """Connects to the first task at the first of its addresses where authentication succeeds."""
        # All are tried in turn, again and again until the limit: the first task may start later, its name may not be
        # known yet, and some addresses of a name may lead elsewhere.
        while True:
            found = addresses.resolve(self._roster.addresses[0], self._roster.names[0], deadline)
            # Where it was reached before, it will be again.
            endpoints = sorted(found, key=lambda endpoint: endpoint != self._reached)
            tried: dict[str, Exception] = {}
            for endpoint in endpoints:
                try:
                    return self._authenticate(endpoint, deadline, is_only=len(endpoints) == 1)
                except (LockstepError, OSError) as error:
                    tried[endpoint.ip] = error
            refusals = [error for error in tried.values() if isinstance(error, LockstepError)]
            if refusals and (len(refusals) == len(tried) or not deadline.can_retry):
                raise refusals[0]
            if not deadline.can_retry:
                if any(isinstance(error, ConnectionAbortedError) for error in tried.values()):
                    raise PeerError(self._gone())
                raise MissingTaskError(self._unreachable(deadline, tried))
            deadline.report(lambda tried=tried: self._state(tried))
            deadline.pause()

    def _authenticate(self, endpoint: Endpoint, deadline: Deadline, is_only: bool) -> _Conversation:
        """Connects to one address and authenticates both sides.

        Raises:
            OSError: If nothing listens there, the listener says nothing, or hangs up before it has said anything.
            JoinError: If the secrets differ.
            PeerError: If something else answers.
        """
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        with contextlib.ExitStack() as failing:
            failing.callback(sock.close)
            sock.settimeout(max(min(deadline.left, _CONNECT_SECONDS), _MIN_SECONDS))
            sock.connect(endpoint.where)
            lines, mine = LineReader(sock), authentication.new_nonce()
            # Something that accepts connections and says nothing must not keep this task from the other addresses.
            patience = deadline.left + GRACE_SECONDS if is_only else min(deadline.left, _ANSWER_SECONDS)
            authentication.send(sock, authentication.nonce_line(mine))
            theirs = authentication.parse_nonce_line(self._read_answer(sock, lines, deadline, patience))
            if theirs is None:
                raise PeerError(self._gone())
            if (demands := theirs.get("secret") is True) != self._secret.is_set:
                raise self._other_secret("demands one, and this task has none" if demands else "has none")
            session = Session(self._secret, mine, theirs["nonce"])
            authentication.send(sock, session.sign(CALLER, {}))
            answer = self._read_answer(sock, lines, deadline, patience)
            proof = session.verify(LISTENER, answer)
            if proof is None:
                said = authentication.parse(answer) or {}
                if self._secret.is_set and (said == authentication.REFUSED or isinstance(said.get("proof"), str)):
                    raise self._other_secret("does not know the one that this task has")
                raise PeerError(self._gone())
            failing.pop_all()
        self._reached = endpoint
        return _Conversation(sock, lines, session, proof.get("door"))

    def _read_answer(self, sock: socket.socket, lines: LineReader, deadline: Deadline, patience: float) -> bytes:
        if answer := self._read_line(sock, lines, deadline, patience):
            return answer
        # As a listener does with one of too many callers: this one tries again.
        raise ConnectionAbortedError("it hangs up")

    def _read_line(self, sock: socket.socket, lines: LineReader, deadline: Deadline, patience: float) -> bytes:
        """Returns the next line within `patience` seconds, else `TimeoutError`; empty if the other side hangs up."""
        end = time.monotonic() + patience
        while True:
            left = end - time.monotonic()
            # The first task's own report, which says more, may be on its way.
            sock.settimeout(max(min(left, deadline.until_report(GRACE_SECONDS)), _MIN_SECONDS))
            try:
                return lines.read()
            except ConnectionError:
                return b""
            except TimeoutError:
                if left <= 0:
                    raise TimeoutError("it does not answer") from None
                deadline.report(lambda: f"{self._me()} waits for {self._roster.describe([0])}'s answer.", GRACE_SECONDS)

    def _verdict(self, talk: _Conversation, deadline: Deadline) -> dict[str, Any]:
        """Returns the first task's verdict, once there is one; logs who is missing, as it says until then."""
        while True:
            try:
                data = self._read_line(talk.sock, talk.lines, deadline, deadline.left + GRACE_SECONDS)
            except TimeoutError as error:
                raise MissingTaskError(self._unreachable(deadline, {talk.sock.getpeername()[0]: error})) from error
            answer = talk.session.verify("answer", data)
            if answer is None:
                raise PeerError(self._gone())
            if "error" in answer:
                # The same error as on the first task, of a few known classes: nothing else is made of a peer's text.
                raise VERDICTS.get(str(answer["error"]), JoinError)(str(answer.get("message")))
            if "state" not in answer:
                return answer
            deadline.log(str(answer["state"]))

    def _other_secret(self, difference: str) -> JoinError:
        return JoinError(
            f"All tasks of a cluster must have the same secret, or none. {self._roster.describe([0])}, or whatever "
            f"answers at its address, {difference}. This task is {self._roster.names[self._process]}. Set {VARIABLE}, "
            f"or {FILE_VARIABLE}, to the same on all tasks."
        )

    def _me(self) -> str:
        return self._roster.describe([self._process])

    def _state(self, tried: Mapping[str, Exception]) -> str:
        why = "; ".join(f"{ip}: {_reason(error)}" for ip, error in tried.items())
        return f"Arrived: {self._me()}. Missing: {self._roster.describe([0])}, to which all others report ({why})."

    def _unreachable(self, deadline: Deadline, tried: Mapping[str, Exception]) -> str:
        loopback = [ip for ip in tried if addresses.is_loopback(ip)]
        host = addresses.split(self._roster.addresses[0])[0]
        hint = (
            f" {', '.join(loopback)} is on the loopback interface, where only this machine's own tasks are. "
            f"{addresses.LOOPBACK_ADVICE}"
            if loopback and not addresses.is_ip(host)
            else ""
        )
        return (
            f"Every task must arrive within {deadline.seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). {self._state(tried)} "
            f"Start it, or check that its address can be reached from here.{hint}"
        )

    def _gone(self) -> str:
        return (
            f"The first task must stay until all have arrived. {self._roster.describe([0])} ended, something else "
            "answers at its address, or the cluster runs already, with another process as "
            f"{self._roster.names[self._process]}. Look at the output of both for the first cause."
        )


def _reason(error: Exception) -> str:
    """Returns why an attempt has failed, in few words."""
    if isinstance(error, LockstepError):
        return "has another secret" if isinstance(error, JoinError) else "something else answers"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
