"""The task that makes calls of a job with parameter servers, and its ways to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.message_channel import PendingRequest
from lockstep._engine.servers.messages import Message
from lockstep._engine.servers.server_group import ServerGroup


class Channel(Protocol):
    """Way to the coordinator."""

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        """Returns the answer to a message."""
        ...

    def begin(self, message: Message) -> PendingRequest:
        """Sends a message whose answer `finish` returns."""
        ...

    def finish(self, pending: PendingRequest) -> Message:
        """Returns the answer to a message that has begun."""
        ...


@dataclass(frozen=True)
class Place:
    """The task that makes a call.

    Attributes:
        task: Its name.
        chief: The chief's name.
        channel: Its way to the coordinator.
        group: Its ways to the servers.
        limits: The limits of its waits.
        check: Raises what ends this task from elsewhere, such as a server's own error; called in each wait.
    """

    task: str
    chief: str
    channel: Channel
    group: ServerGroup
    limits: Limits
    check: Callable[[], None]
