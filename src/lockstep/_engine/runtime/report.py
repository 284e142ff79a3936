"""Another task's side of the arrival: reports to the first task, and waits for its verdict."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep._engine.runtime import addresses, door, handshake, listening
from lockstep._engine.runtime.addresses import Endpoint
from lockstep._engine.runtime.handshake import CALLER, LISTENER, LineReader, Seal
from lockstep._engine.runtime.rendezvous import GRACE_SECONDS, VERDICTS, Roll
from lockstep._engine.runtime.secret import FILE_VARIABLE, VARIABLE, Secret
from lockstep._engine.runtime.waiting import Waiting
from lockstep.errors import JoinError, LockstepError, MissingTaskError, PeerError

# For a connection: packets that are dropped are sent again after 1 and 3 seconds.
_CONNECT_SECONDS = 5.0
# For the answer to a greeting, where there are other addresses to try; the first task answers at once.
_ANSWER_SECONDS = 10.0
# A time limit of 0 would mean not to wait at all.
_LEAST_SECONDS = 0.01


@dataclass(frozen=True)
class Admission:
    """The first task's "go".

    Attributes:
        says: What else it says.
        ip: The address of this machine from which the first task is reached.
        reached: The address at which it is reached.
        directory: Of the first task's door.
    """

    says: Mapping[str, Any]
    ip: str
    reached: str
    directory: str

    @property
    def chief(self) -> str:
        """The first task's address as all tasks reach it."""
        told = self.says.get("ip")
        return str(told) if addresses.is_ip(told) else self.reached

    @property
    def outside(self) -> str:
        """An address of this machine that other tasks can reach, of the family of the first task's, as Gloo demands.

        A task that has reached the first one over the loopback interface is on its machine, and has its address.
        """
        if addresses.is_loopback(self.ip):
            return self.chief
        if addresses.is_same_family(self.ip, self.chief):
            return self.ip
        return addresses.facing(addresses.lookup(addresses.join_host(self.chief, 1))[0]) or self.ip


@dataclass(frozen=True)
class _Talk:
    """A conversation with the first task, after both have proven themselves."""

    sock: socket.socket
    lines: LineReader
    seal: Seal
    directory: Any


class Reporter:
    """Speaks with the first task.

    Args:
        roll: The tasks, in process order.
        process: The index of this one.
        hello: What it says of itself.
        secret: What it knows.
    """

    def __init__(self, roll: Roll, process: int, hello: Mapping[str, Any], secret: Secret | None = None) -> None:
        self._roll = roll
        self._process = process
        self._hello = {**hello, "process": process, "generation": roll.generation}
        self._secret = secret or Secret()
        # Where the first task was reached: the DNS may be out of reach when it must be reached again.
        self._reached: Endpoint | None = None

    def report(self, seconds: float, keep: Callable[[int, socket.socket], None] | None = None) -> Admission:
        """Reports, and returns when all tasks have arrived.

        Args:
            seconds: How long to wait for them.
            keep: Takes over the connection with the first task; without it that is closed.

        Raises:
            AddressError: If the first task's name does not resolve.
            JoinError: If the first task does not receive this one: of another secret, of another attempt, or twice.
            MissingTaskError: If the first task cannot be reached, or somebody else is missing.
            MismatchError: If the tasks disagree about the cluster or the versions.
            PeerError: If the first task ends while this one waits.
        """
        waiting = Waiting(seconds)
        talk = self._introduced(waiting)
        with contextlib.ExitStack() as ending:
            sock = ending.enter_context(talk.sock)
            token = door.seen_through(talk.directory)
            handshake.send(sock, talk.seal.write("hello", self._hello | {"sees": token and talk.seal.shows(token)}))
            verdict = self._verdict(talk, waiting)
            if keep is not None:
                keep(0, sock)
                ending.pop_all()
            return Admission(verdict, str(sock.getsockname()[0]), str(sock.getpeername()[0]), str(talk.directory))

    def reach_service(self, seconds: float, stream: str, resumes: bool) -> tuple[socket.socket, bytes]:
        """Connects to jax's service, which the first task passes on, in one attempt, after `report`.

        Args:
            seconds: How long to wait for the connection and the answers.
            stream: The name of the stream that the connection carries.
            resumes: Whether another connection has carried it before.

        Returns:
            The connection, and what has come from it already.

        Raises:
            OSError: If the first task cannot be reached, or hangs up.
            MissingTaskError: If it does not answer.
            JoinError: If it does not receive this one, or does not know the stream.
            PeerError: If something else answers at its address.
        """
        assert self._reached is not None
        waiting = Waiting(seconds)
        talk = self._introduced_at(self._reached, waiting, is_only=False)
        with contextlib.ExitStack() as failing:
            failing.callback(talk.sock.close)
            wanted = {"wants": "service", "stream": stream, "resumes": resumes}
            handshake.send(talk.sock, talk.seal.write("hello", self._hello | wanted))
            self._verdict(talk, waiting)
            failing.pop_all()
        talk.sock.settimeout(seconds)
        return talk.sock, talk.lines.rest()

    def _introduced(self, waiting: Waiting) -> _Talk:
        """Connects to the first task and exchanges proofs, at the first of its addresses where that succeeds.

        All are tried in turn, again and again until the limit: the first task may start later, its name may not be
        known yet, and some addresses of a name may lead elsewhere.
        """
        while True:
            endpoints = self._endpoints(waiting)
            tried: dict[str, Exception] = {}
            for endpoint in endpoints:
                try:
                    return self._introduced_at(endpoint, waiting, is_only=len(endpoints) == 1)
                except (LockstepError, OSError) as error:
                    tried[endpoint.ip] = error
            refusals = [error for error in tried.values() if isinstance(error, LockstepError)]
            if refusals and (len(refusals) == len(tried) or not waiting.can_retry):
                raise refusals[0]
            if not waiting.can_retry:
                if any(isinstance(error, ConnectionAbortedError) for error in tried.values()):
                    raise PeerError(self._gone())
                raise MissingTaskError(self._unreachable(waiting, tried))
            waiting.report(lambda tried=tried: self._state(tried))
            waiting.pause()

    def _endpoints(self, waiting: Waiting) -> list[Endpoint]:
        found = addresses.resolve(self._roll.addresses[0], self._roll.names[0], waiting)
        # Where it was reached before, it will be again.
        return sorted(found, key=lambda endpoint: endpoint != self._reached)

    def _introduced_at(self, endpoint: Endpoint, waiting: Waiting, is_only: bool) -> _Talk:
        """Connects to one address and exchanges proofs.

        Raises:
            OSError: If nobody is there, who is there says nothing, or hangs up before it has said anything.
            JoinError: If the secrets differ.
            PeerError: If something else answers.
        """
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        with contextlib.ExitStack() as failing:
            failing.callback(sock.close)
            sock.settimeout(max(min(waiting.left, _CONNECT_SECONDS), _LEAST_SECONDS))
            sock.connect(endpoint.where)
            lines, mine = handshake.LineReader(sock), handshake.new_nonce()
            # Something that accepts connections and says nothing must not keep this task from the other addresses.
            patience = waiting.left + GRACE_SECONDS if is_only else min(waiting.left, _ANSWER_SECONDS)
            handshake.send(sock, handshake.greeting(mine))
            answer = self._answer(sock, lines, waiting, patience)
            theirs = handshake.greeted(answer)
            if theirs is None:
                raise PeerError(self._gone())
            self._demand_alike(theirs.get("secret") is True)
            seal = Seal(self._secret, mine, theirs["nonce"])
            handshake.send(sock, seal.prove(CALLER))
            answer = self._answer(sock, lines, waiting, patience)
            proof = seal.read(LISTENER, answer)
            if proof is None:
                raise self._unproven(answer)
            failing.pop_all()
        self._reached = endpoint
        return _Talk(sock, lines, seal, proof.get("door"))

    def _answer(self, sock: socket.socket, lines: LineReader, waiting: Waiting, patience: float) -> bytes:
        """Returns the next line; `ConnectionAbortedError` if the other side hangs up, as on one of too many callers."""
        if answer := self._line(sock, lines, waiting, patience):
            return answer
        raise ConnectionAbortedError("it hangs up")

    def _line(self, sock: socket.socket, lines: LineReader, waiting: Waiting, patience: float) -> bytes:
        """Returns the next line within `patience` seconds, else `TimeoutError`; empty if the other side hangs up."""
        deadline = time.monotonic() + patience
        while True:
            left = deadline - time.monotonic()
            # The first task's own report, which says more, may be on its way.
            sock.settimeout(max(min(left, waiting.until_report(GRACE_SECONDS)), _LEAST_SECONDS))
            try:
                return lines.read()
            except ConnectionError:
                return b""
            except TimeoutError:
                if left <= 0:
                    raise TimeoutError("it does not answer") from None
                waiting.report(lambda: f"{self._me()} waits for {self._roll.describe([0])}'s answer.", GRACE_SECONDS)

    def _verdict(self, talk: _Talk, waiting: Waiting) -> dict[str, Any]:
        """Returns the first task's verdict, once there is one; logs who is missing, as it says until then."""
        while True:
            try:
                data = self._line(talk.sock, talk.lines, waiting, waiting.left + GRACE_SECONDS)
            except TimeoutError as error:
                raise MissingTaskError(self._unreachable(waiting, {talk.sock.getpeername()[0]: error})) from error
            answer = talk.seal.read("answer", data)
            if answer is None:
                raise PeerError(self._gone())
            if "error" in answer:
                raise VERDICTS.get(str(answer["error"]), JoinError)(str(answer.get("message")))
            if "state" not in answer:
                return answer
            waiting.pass_on(str(answer["state"]))

    def _unproven(self, answer: bytes) -> LockstepError:
        """Returns the error of a listener that does not prove what this task has proven."""
        said = handshake.parse(answer) or {}
        if self._secret.is_set and (said == handshake.REFUSED or isinstance(said.get("proof"), str)):
            return JoinError(self._other_secret("does not know the one that this task has"))
        return PeerError(self._gone())

    def _demand_alike(self, theirs: bool) -> None:
        if theirs != self._secret.is_set:
            raise JoinError(self._other_secret("demands one, and this task has none" if theirs else "has none"))

    def _other_secret(self, found: str) -> str:
        return (
            f"All tasks of a cluster must have the same secret, or none. {self._roll.describe([0])}, or whatever "
            f"answers at its address, {found}. This task is {self._roll.names[self._process]}. Set {VARIABLE}, or "
            f"{FILE_VARIABLE}, to the same on all tasks."
        )

    def _me(self) -> str:
        return self._roll.describe([self._process])

    def _state(self, tried: Mapping[str, Exception]) -> str:
        why = "; ".join(f"{ip}: {_reason(error)}" for ip, error in tried.items())
        return f"Arrived: {self._me()}. Missing: {self._roll.describe([0])}, to which all others report ({why})."

    def _unreachable(self, waiting: Waiting, tried: Mapping[str, Exception]) -> str:
        loopback = [ip for ip in tried if addresses.is_loopback(ip)]
        host = addresses.split(self._roll.addresses[0])[0]
        hint = (
            f" {', '.join(loopback)} is on the loopback interface, where only this machine's own tasks are. "
            f"{listening.LOOPBACK_ADVICE}"
            if loopback and not addresses.is_ip(host)
            else ""
        )
        return (
            f"Every task must arrive within {waiting.seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). {self._state(tried)} "
            f"Start it, or check that its address can be reached from here.{hint}"
        )

    def _gone(self) -> str:
        return (
            f"The first task must stay until all have arrived. {self._roll.describe([0])} ended, something else "
            "answers at its address, or the cluster runs already, with another process as "
            f"{self._roll.names[self._process]}. Look at the output of both for the first cause."
        )


def _reason(error: Exception) -> str:
    """Returns why an attempt has failed, in few words."""
    if isinstance(error, LockstepError):
        return "has another secret" if isinstance(error, JoinError) else "something else answers"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
