"""Replies to the requests of one connection, where the one to a push that goes ahead comes with the next."""

from __future__ import annotations

from collections.abc import Callable

from lockstep._engine.servers.messages import ProtocolError
from lockstep._engine.servers.requests import Pull, Push, Reply, Request

Exchange = Callable[[Push | None, Pull | None, float], Reply]


class Replies:
    """Answers the requests of one connection, in their order.

    A worker sends its push ahead of its next pull, and has no use for a reply between the two: to send and receive one
    took both tasks 60 us of a step.

    Args:
        exchange: Applies a push and answers a pull.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        # Of the push that has gone ahead.
        self._kept: Reply | None = None

    def reply_to(self, request: Request) -> Reply | None:
        """Returns the reply to a request, and to the push that went ahead of it; `None` for such a push itself.

        Raises:
            ProtocolError: If there is nothing to reply to.
        """
        kept, self._kept = self._kept, None
        if request.push is None and request.pull is None:
            if kept is None:
                raise ProtocolError("a request for the reply to a push that has not come")
            return kept
        if kept is not None and kept.status != "ok":
            return kept
        reply = self._exchange(request.push, request.pull, request.seconds)
        if request.is_ahead:
            self._kept = reply
            return None
        if kept is not None:
            reply.applied, reply.staleness = kept.applied, kept.staleness
        return reply
