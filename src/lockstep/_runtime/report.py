"""Another task's side of the arrival: reports to the first task, and waits for its verdict."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep._runtime import addresses, door, handshake
from lockstep._runtime.handshake import Seal
from lockstep._runtime.rendezvous import GRACE_SECONDS, VERDICTS, Roll
from lockstep._runtime.secret import FILE_VARIABLE, VARIABLE, Secret
from lockstep.errors import JoinError, MissingTaskError, PeerError

_RETRY_SECONDS = 0.1


@dataclass(frozen=True)
class Admission:
    """The first task's "go".

    Attributes:
        says: What else it says.
        ip: The address of this machine from which the first task is reached.
        directory: Of the first task's door.
    """

    says: Mapping[str, Any]
    ip: str
    directory: str


@dataclass(frozen=True)
class _Talk:
    """A conversation with the first task, after the greetings."""

    sock: socket.socket
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
        self._peer: tuple[str, int] | None = None

    def report(self, seconds: float) -> Admission:
        """Reports, and returns when all tasks have arrived.

        Raises:
            JoinError: If the first task does not receive this one: of another secret, of another attempt, or twice.
            MissingTaskError: If the first task cannot be reached, or somebody else is missing.
            MismatchError: If the tasks disagree about the cluster or the versions.
            PeerError: If the first task ends while this one waits.
        """
        deadline = time.monotonic() + seconds
        talk = self._greeted(deadline, seconds)
        with talk.sock as sock:
            sock.settimeout(max(deadline - time.monotonic(), 0.0) + GRACE_SECONDS)
            token = door.seen_through(talk.directory)
            handshake.send(sock, talk.seal.write("hello", self._hello | {"sees": token and talk.seal.shows(token)}))
            verdict, _ = self._verdict(talk, seconds)
            self._peer = sock.getpeername()[:2]
            return Admission(verdict, str(sock.getsockname()[0]), str(talk.directory))

    def reach_service(self, seconds: float, stream: str, resumes: bool) -> tuple[socket.socket, bytes]:
        """Connects to jax's service, which the first task passes on, in one attempt, after `report`.

        Args:
            seconds: How long to wait for the connection, and for each answer.
            stream: The name of the stream that the connection carries.
            resumes: Whether another connection has carried it before.

        Returns:
            The connection, and what has come from it already.

        Raises:
            OSError: If the first task cannot be reached.
            MissingTaskError: If it does not answer.
            JoinError: If it does not receive this one, or does not know the stream.
            PeerError: If something else answers at its address.
        """
        assert self._peer is not None
        with contextlib.ExitStack() as failing:
            sock = socket.create_connection(self._peer, timeout=seconds)
            failing.callback(sock.close)
            talk = self._greet(sock, seconds)
            if talk is None:
                raise MissingTaskError(self._unreachable(seconds, "hangs up"))
            wanted = {"wants": "service", "stream": stream, "resumes": resumes}
            handshake.send(sock, talk.seal.write("hello", self._hello | wanted))
            _, rest = self._verdict(talk, seconds)
            failing.pop_all()
        return sock, rest

    def _greeted(self, deadline: float, seconds: float) -> _Talk:
        """Connects, and exchanges greetings; again, where somebody hangs up on a caller it has not yet heard."""
        while True:
            sock = self._connected(deadline, seconds)
            with contextlib.ExitStack() as failing:
                failing.callback(sock.close)
                sock.settimeout(max(deadline - time.monotonic(), 0.0) + GRACE_SECONDS)
                talk = self._greet(sock, seconds)
                if talk is None and time.monotonic() + _RETRY_SECONDS < deadline:
                    time.sleep(_RETRY_SECONDS)
                    continue
                if talk is None:
                    raise PeerError(self._gone())
                failing.pop_all()
                return talk

    def _greet(self, sock: socket.socket, seconds: float) -> _Talk | None:
        """Exchanges greetings; returns `None` if the other side hangs up."""
        mine = handshake.new_nonce()
        handshake.send(sock, handshake.greeting(mine))
        answer, hung_up = self._answer(sock, seconds)
        if hung_up:
            return None
        theirs = handshake.greeted(answer)
        if theirs is None:
            raise PeerError(self._gone())
        self._demand_alike(theirs.get("secret") is True)
        return _Talk(sock, Seal(self._secret, mine, theirs["nonce"]), theirs.get("door"))

    def _connected(self, deadline: float, seconds: float) -> socket.socket:
        target = addresses.resolve(self._roll.addresses[0], self._roll.names[0])
        while True:
            try:
                return socket.create_connection(target, timeout=max(deadline - time.monotonic(), _RETRY_SECONDS))
            except OSError as error:
                if time.monotonic() + _RETRY_SECONDS > deadline:
                    raise MissingTaskError(self._unreachable(seconds, str(error))) from error
                time.sleep(_RETRY_SECONDS)

    def _answer(self, sock: socket.socket, seconds: float) -> tuple[bytes, bool]:
        """Returns the answer to a greeting, and whether there is none because the other side hung up."""
        try:
            answer, _ = handshake.read_line(sock)
        except ConnectionError:
            return b"", True
        except OSError as error:
            raise MissingTaskError(self._unreachable(seconds, "does not answer")) from error
        return answer, not answer

    def _verdict(self, talk: _Talk, seconds: float) -> tuple[dict[str, Any], bytes]:
        try:
            data, rest = handshake.read_line(talk.sock)
        except ConnectionError:
            raise PeerError(self._gone()) from None
        except OSError as error:
            raise MissingTaskError(self._unreachable(seconds, "does not answer")) from error
        verdict = talk.seal.read("answer", data)
        if verdict is None:
            if self._secret.is_set and isinstance((handshake.parse(data) or {}).get("proof"), str):
                raise JoinError(self._other_secret("does not know the one that this task has"))
            raise PeerError(self._gone())
        if "error" in verdict:
            raise VERDICTS.get(str(verdict["error"]), JoinError)(str(verdict.get("message")))
        return verdict, rest

    def _demand_alike(self, theirs: bool) -> None:
        if theirs != self._secret.is_set:
            raise JoinError(self._other_secret("demands one, and this task has none" if theirs else "has none"))

    def _other_secret(self, found: str) -> str:
        return (
            f"All tasks of a cluster must have the same secret, or none. {self._roll.describe([0])}, or whatever "
            f"answers at its address, {found}. This task is {self._roll.names[self._process]}. Set {VARIABLE}, or "
            f"{FILE_VARIABLE}, to the same on all tasks."
        )

    def _unreachable(self, seconds: float, why: str) -> str:
        return (
            f"Every task must arrive within {seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). "
            f"Arrived: {self._roll.describe([self._process])}. Missing: {self._roll.describe([0])}, to which all "
            f"others report ({why}). Start it, or check that its address can be reached from here."
        )

    def _gone(self) -> str:
        return (
            f"The first task must stay until all have arrived. {self._roll.describe([0])} ended, something else "
            "answers at its address, or the cluster runs already, with another process as "
            f"{self._roll.names[self._process]}. Look at the output of both for the first cause."
        )
