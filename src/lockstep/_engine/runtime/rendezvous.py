"""Arrival: every task of a cluster reports to the first one before jax.distributed starts.

jax's own coordination service ends the process from C++ when a task stays away, and cannot say who. This protocol
comes first, on the address that the cluster names for the first task: after the greetings (`handshake`) each task says
in one line who it is, which cluster it sees, which versions it runs and which attempt it belongs to, and receives one
line, the verdict. A verdict other than "go" is the same error on every task that arrived.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep._engine.runtime import addresses, listening
from lockstep._engine.runtime.door import Door
from lockstep._engine.runtime.gate import Caller, Gate
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.secret import Secret
from lockstep._engine.runtime.waiting import Waiting
from lockstep.errors import (
    ClusterSpecError,
    JoinError,
    LockstepError,
    MismatchError,
    MissingTaskError,
)

# A task that waits for the verdict allows the first task this much longer than its own limit.
GRACE_SECONDS = 2.0
# In a report, which goes to the log of every task every ten seconds.
_MOST_NAMES = 20
_MAX_INDEX = 1 << 20
VERDICTS: dict[str, type[LockstepError]] = {
    e.__name__: e for e in (JoinError, MismatchError, MissingTaskError, ClusterSpecError)
}


@dataclass(frozen=True)
class Roll:
    """The tasks that must arrive, in process order, where each lives, and which attempt at the job they make."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    generation: int = 0

    def describe(self, which: list[int]) -> str:
        """Lists tasks as "worker 1 (10.0.0.2:2222)"."""
        return ", ".join(f"{self.names[i]} ({self.addresses[i]})" for i in which) or "nobody"

    def outline(self, which: list[int]) -> str:
        """Lists tasks as `describe`, or the first of many."""
        more = len(which) - _MOST_NAMES
        return self.describe(which[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


class Host:
    """The first task's side: collects arrivals, then tells everyone the verdict.

    Args:
        roll: Who must arrive.
        hello: What the first task says of itself.
        check: Finds what is wrong with all hellos together.
        secret: What all must know.
        door: Of this process; tells who is on the same machine.
        seconds: How long all may take to arrive, from now on; also the first task's own name to resolve.

    Attributes:
        ip: The address of this machine that all tasks are to use for the first one, once `collect` has returned.

    Raises:
        AddressError: If the first task cannot listen on its address.
    """

    def __init__(
        self,
        roll: Roll,
        hello: Mapping[str, Any],
        check: Callable[[list[Any]], str | None],
        secret: Secret | None = None,
        door: Door | None = None,
        seconds: float = Limits.join,
    ) -> None:
        self._waiting = Waiting(seconds)
        self._roll = roll
        self._hellos: dict[int, Mapping[str, Any]] = {0: hello}
        # Those who wait for the verdict, also one that is no task of this cluster.
        self._arrived: dict[int, Caller] = {}
        self._near: set[int] = {0}
        self._check = check
        self._door = door
        servers = listening.listen(roll.addresses[0], roll.names[0], roll.addresses[1:], self._waiting)
        self._own = [str(server.getsockname()[0]) for server in servers]
        self.ip = self._own[0]
        directory = door.directory if door else None
        self._gate = Gate(servers, secret or Secret(), roll.names[0], self._welcome, self._gone, directory)

    @property
    def are_near(self) -> bool:
        """Whether all who have arrived are on this machine, and of this user."""
        return self._near.issuperset(self._hellos)

    def collect(self) -> Gate:
        """Waits for every task; then everyone waits for `release`.

        Returns:
            The gate, which nobody listens to now. Whoever closes it frees the address.

        Raises:
            MissingTaskError: If a task has not arrived at the limit.
            MismatchError: If the tasks disagree about the cluster or the versions, or one comes twice.
        """
        try:
            self._gather()
            if problem := self._check([self._hellos[i] for i in range(len(self._roll.names))]):
                raise MismatchError(problem)
        except BaseException as error:
            kind = type(error).__name__ if isinstance(error, LockstepError) else "JoinError"
            self._tell({"error": kind, "message": str(error) or repr(error)})
            self._gate.close()
            raise
        self.ip = self._reached()
        for caller in self._arrived.values():
            self._gate.let_go(caller)
        self._gate.expect_few()
        return self._gate

    def release(self, keep: Callable[[int, socket.socket], None] | None = None, **more: Any) -> None:
        """Tells every task to go on, and what else it needs to know.

        Args:
            keep: Takes over the connection with each task; without it they are closed.
            more: What else.
        """
        self._tell({"go": True, **more})
        if keep is not None:
            for process, caller in self._arrived.items():
                keep(process, caller.sock)
            self._arrived.clear()
        self.close()

    def close(self) -> None:
        """Closes the connections of those who have arrived."""
        for caller in self._arrived.values():
            caller.sock.close()
        self._arrived.clear()

    def _reached(self) -> str:
        """Returns the address of this machine to which most of the others have come.

        It is one of the loopback interface only if all have come to that: tasks of this machine can reach the others.
        """
        ips = Counter(str(caller.sock.getsockname()[0]) for caller in self._arrived.values())
        counts = {ip: count for ip, count in ips.items() if not addresses.is_loopback(ip)} or ips
        return max(counts, key=lambda ip: (counts[ip], ip), default=self._own[0])

    def _gather(self) -> None:
        while len(self._hellos) < len(self._roll.names):
            if not self._waiting.left:
                if problem := self._check([self._hellos[i] for i in sorted(self._hellos)]):
                    raise MismatchError(problem)
                raise MissingTaskError(self._missing())
            if state := self._waiting.report(self._state):
                for caller in self._arrived.values():
                    caller.tell({"state": state})
            self._gate.listen(min(self._waiting.left, self._waiting.until_report()))

    def _state(self) -> str:
        here, missing = self._present()
        return f"Arrived: {self._roll.outline(here)}. Missing: {self._roll.outline(missing)}."

    def _present(self) -> tuple[list[int], list[int]]:
        """Returns who has arrived, and who has not."""
        everyone = range(len(self._roll.names))
        return [i for i in everyone if i in self._hellos], [i for i in everyone if i not in self._hellos]

    def _welcome(self, caller: Caller, hello: dict[str, Any]) -> None:
        if not is_hello(hello):
            self._gate.refuse(caller, "it is no task of a cluster")
            return
        if problem := other_generation(self._roll, hello):
            self._gate.turn_away(caller, problem)
            return
        if "wants" in hello:
            self._gate.turn_away(caller, "The first task has started again: a cluster starts anew with it.")
            return
        index = hello["process"]
        if index in self._hellos:
            self._gate.turn_away(
                caller,
                f"Each task of a cluster runs once. {self._roll.describe([index])} has already arrived: "
                "this process has the same task in TF_CONFIG. Give it the index of its own, or stop the other one.",
            )
            return
        self._arrived[index] = caller
        if index >= len(self._roll.names):
            raise MismatchError(self._check([self._hellos[0], hello]) or f"Unknown task: {hello['task']!r}.")
        self._hellos[index] = hello
        if self._door and caller.seal and hello.get("sees") == caller.seal.shows(self._door.token):
            self._near.add(index)

    def _gone(self, caller: Caller) -> None:
        """A task that has arrived and goes before all have is missing again; its successor may come."""
        for index in [i for i, c in self._arrived.items() if c is caller]:
            del self._hellos[index], self._arrived[index]
            self._near.discard(index)
        self._gate.drop(caller)

    def _missing(self) -> str:
        here, missing = self._present()
        loopback = [ip for ip in self._own if addresses.is_loopback(ip)]
        hint = (
            f" {self._roll.names[0]} listens on {', '.join(self._own)}, the loopback interface, which other machines "
            f"cannot reach. {listening.LOOPBACK_ADVICE}"
            if len(loopback) == len(self._own) and not addresses.is_ip(addresses.split(self._roll.addresses[0])[0])
            else ""
        )
        return (
            f"Every task must arrive within {self._waiting.seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). "
            f"Arrived: {self._roll.describe(here)}. Missing: {self._roll.describe(missing)}. Start the missing "
            f"tasks, or check that they can reach the first one and have the same cluster in TF_CONFIG.{hint}"
        )

    def _tell(self, verdict: dict[str, Any]) -> None:
        for caller in self._arrived.values():
            with contextlib.suppress(OSError):
                caller.sock.setblocking(True)
                caller.sock.settimeout(GRACE_SECONDS)
                caller.tell(verdict)


class Entrance(Protocol):
    """The way to jax's service, for tasks that take part."""

    def admits(self, hello: Mapping[str, Any]) -> bool:
        """Returns whether the stream that a task names is a new one, or one that it resumes."""
        ...

    def take(self, link: socket.socket, hello: Mapping[str, Any]) -> None:
        """Takes over the connection of a task that `admits` was asked about."""
        ...


class Doorkeeper:
    """Stays at the first task's address when all have arrived: whoever comes now is told why it cannot take part.

    Args:
        gate: Of the first task.
        roll: Who takes part.
        entrance: Takes over the connections of tasks that take part, and want to reach jax's service; or `None`.
    """

    def __init__(self, gate: Gate, roll: Roll, entrance: Entrance | None) -> None:
        self._gate = gate
        self._roll = roll
        self._entrance = entrance
        gate.on_hello, gate.on_gone = self._meet, gate.drop
        # A forked process must not keep the address when this one has gone.
        os.register_at_fork(after_in_child=gate.close)

    def serve(self) -> None:
        """Serves for as long as the process lives."""
        while True:
            self._gate.listen(60.0)

    def _meet(self, caller: Caller, hello: dict[str, Any]) -> None:
        if not is_hello(hello) or hello["process"] >= len(self._roll.names):
            self._gate.refuse(caller, "it is no task of this cluster")
        elif problem := other_generation(self._roll, hello):
            self._gate.turn_away(caller, problem)
        elif hello.get("wants") == "service" and self._entrance is not None and self._entrance.admits(hello):
            caller.tell({"go": True})
            self._gate.let_go(caller)
            self._entrance.take(caller.sock, hello)
        else:
            self._gate.turn_away(
                caller,
                f"Each task of a cluster runs once. The cluster runs already, with another process as "
                f"{self._roll.names[hello['process']]}. Stop the whole job before starting it again, or give this "
                "process a task of its own in TF_CONFIG.",
            )


def is_hello(value: Mapping[str, Any]) -> bool:
    """Whether this is what a task says of itself, and not what a stranger sends."""
    index, generation = value.get("process"), value.get("generation")
    return (
        (type(index) is int and 0 < index < _MAX_INDEX)
        and (type(generation) is int and generation >= 0)
        and isinstance(value.get("task"), str)
        and isinstance(value.get("cluster"), dict)
        and isinstance(value.get("versions"), dict)
    )


def other_generation(roll: Roll, hello: Mapping[str, Any]) -> str | None:
    """Says why a task of another attempt at the job cannot take part, if it is one."""
    theirs, ours = hello["generation"], roll.generation
    if theirs == ours:
        return None
    which = "an attempt that has been given up: end it" if theirs < ours else "a later attempt: end this one first"
    return (
        f"Only tasks of one attempt at a job (LOCKSTEP_GENERATION) take part in it together. {hello['task'][:100]} is "
        f"of generation {theirs}, {roll.describe([0])} of generation {ours}. The process is of {which}."
    )
