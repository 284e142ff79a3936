"""Round trips to all servers at once: requests go to each, then answers come from each; again where one has failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lockstep._engine.servers.messages import Message, ProtocolError, Superseded
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply, Request
from lockstep.errors import MissingTaskError

# Between two attempts to reach a server that does not answer.
_RETRY_SECONDS = 0.1
# A pull of a version waits at most so long at the server, and is then sent again.
_PULL_SECONDS = 5.0


class ServerLink(Protocol):
    """Way to one server.

    Attributes:
        task: The server's name.
        heard: When its last sign of life came before the answer to an exchange, by the monotonic clock; 0 for none.
    """

    task: str
    heard: float

    def bind(self, spec: JobSpec) -> None:
        """Sets the layout by which exchanges are encoded."""
        ...

    def send(self, request: Request) -> None:
        """Sends what `receive` returns the reply to; `OSError` if the server cannot be reached."""
        ...

    def receive(self) -> Reply:
        """Returns the reply to the oldest request that has none yet; `OSError` if the connection breaks."""
        ...

    def disconnect(self) -> None:
        """Forgets requests that have no reply yet."""
        ...

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        """Returns the answer to a message, sent again while the server cannot be reached."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


class _SharesMissing(TimeoutError):
    """Error of a server that has answered, and waits for shares of other workers."""


@dataclass
class _Begun:
    """Holds pushes that were sent before their pull.

    Attributes:
        pushes: By server.
        sent: The servers that have been sent theirs, and reply to it with the next request.
        replies: Of servers that have replied to it alone.
    """

    pushes: Sequence[Push]
    sent: set[int] = field(default_factory=set[int])
    replies: dict[int, Reply] = field(default_factory=dict[int, Reply])

    def has_reached(self, number: int) -> bool:
        """Returns whether a server has its push, as far as is known."""
        return number in self.sent or number in self.replies


class RoundTrips:
    """Pushes to all servers of a job and pulls from all.

    A push may go ahead of its pull: servers apply it while the worker finds out what to pull.

    Args:
        links: The ways to the servers, in their order.
        check: Called between attempts to reach a server, with its name, the seconds since it answered last, and the
            generation of the request; raises what ends the wait.
    """

    def __init__(self, links: Sequence[ServerLink], check: Callable[[str, float, int], None]) -> None:
        self._links = links
        self._check = check
        self._begun: _Begun | None = None

    def begin(self, pushes: Sequence[Push]) -> None:
        """Sends a push to each server; `run` with the same ones has their answers, and sends again what was lost."""
        self._settle()
        self._begun = begun = _Begun(pushes)
        for number, (link, push) in enumerate(zip(self._links, pushes, strict=True)):
            try:
                link.send(Request(push, None, _PULL_SECONDS, is_ahead=True))
            except (OSError, ProtocolError):
                continue
            begun.sent.add(number)

    def drop(self) -> None:
        """Forgets pushes that have begun."""
        begun, self._begun = self._begun, None
        for number in begun.sent if begun is not None else ():
            self._links[number].disconnect()

    def run(
        self, pushes: Sequence[Push | None], pulls: Sequence[Pull | None], generation: int, limit: float
    ) -> dict[int, Reply]:
        """Pushes to each server and pulls from each; returns the answers by server.

        Raises:
            Superseded: If a server is of another generation.
            MissingTaskError: If a server does not answer for good, or not within `limit` seconds.
        """
        if self._begun is None or self._begun.pushes is not pushes:
            # Their replies would come with those to this.
            self._settle()
            begun = _Begun([])
        else:
            begun, self._begun = self._begun, None
        replies: dict[int, Reply] = {}
        began = time.monotonic()
        while waiting := [n for n in range(len(self._links)) if n not in replies]:
            failed = self._try(waiting, begun, pushes, pulls, replies)
            for number, error in failed.items():
                # A server that is busy is not one that cannot be reached; one that waits for other tasks is not busy.
                since = began if isinstance(error, _SharesMissing) else max(began, self._links[number].heard)
                seconds = time.monotonic() - since
                if seconds > limit:
                    raise MissingTaskError(
                        f"{self._links[number].task} must answer within {limit:g} s. It does not: {error}"
                    ) from error
                self._check(self._links[number].task, seconds, generation)
            if failed:
                time.sleep(_RETRY_SECONDS)
        return replies

    def _try(
        self,
        waiting: Sequence[int],
        begun: _Begun,
        pushes: Sequence[Push | None],
        pulls: Sequence[Pull | None],
        replies: dict[int, Reply],
    ) -> Mapping[int, Exception]:
        """Sends to all servers, then receives from all; returns those that have failed."""
        failed: dict[int, Exception] = {}
        asked: set[int] = set()
        for number in waiting:
            push, pull = None if begun.has_reached(number) else pushes[number], pulls[number]
            if push is None and pull is None and number in begun.replies:
                continue
            try:
                self._links[number].send(Request(push, pull, _PULL_SECONDS))
                asked.add(number)
            except (OSError, ProtocolError) as error:
                # The connection is closed, and a push that went ahead may be lost.
                begun.sent.discard(number)
                failed[number] = error
        # Every reply is received, also after a failure: else it would be taken for that to the next request.
        superseded = ""
        for number in waiting:
            if number in failed:
                continue
            try:
                reply = self._receive(number, begun, number in asked)
            except (OSError, ProtocolError) as error:
                begun.sent.discard(number)
                failed[number] = error
                continue
            if reply.status == "superseded":
                superseded = self._links[number].task
            elif reply.status == "waiting":
                failed[number] = _SharesMissing(f"it waits for shares {list(reply.missing)} of other workers")
            else:
                replies[number] = reply
        if superseded:
            raise Superseded(f"{superseded} is of another generation")
        return failed

    def _receive(self, number: int, begun: _Begun, is_asked: bool) -> Reply:
        """Receives a server's reply, with what it has said to a push that went ahead."""
        of_push = begun.replies.get(number)
        if not is_asked:
            assert of_push is not None
            return of_push
        reply = self._links[number].receive()
        if of_push is not None:
            reply.applied, reply.staleness = of_push.applied, of_push.staleness
        return reply

    def _settle(self) -> None:
        """Asks for the replies to pushes that have begun, for a `run` to come."""
        begun = self._begun
        if begun is None:
            return
        for number in sorted(begun.sent):
            begun.sent.discard(number)
            try:
                self._links[number].send(Request(None, None, _PULL_SECONDS))
                begun.replies[number] = self._links[number].receive()
            except (OSError, ProtocolError):
                continue  # It is sent again.
