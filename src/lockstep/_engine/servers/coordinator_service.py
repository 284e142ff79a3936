"""Ways from tasks to the coordinator of their job: over a connection, or within a process."""

from __future__ import annotations

from lockstep._engine.servers.connection import FrameSocket
from lockstep._engine.servers.coordinator import Coordinator
from lockstep._engine.servers.message_channel import PendingRequest
from lockstep._engine.servers.messages import BEAT, MESSAGE, Message, ProtocolError, decode, encode


class LocalChannel:
    """Way to the coordinator of this process."""

    def __init__(self, coordinator: Coordinator, task: str) -> None:
        self._coordinator, self._task = coordinator, task

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        """Returns the coordinator's answer."""
        del seconds
        return self._coordinator.requests.handle(self._task, message)

    def begin(self, message: Message) -> PendingRequest:
        """Asks the coordinator at once."""
        return PendingRequest(message, self.ask(message))

    def finish(self, pending: PendingRequest) -> Message:
        """Returns the coordinator's answer."""
        assert pending.answer is not None
        return pending.answer


class CoordinatorService:
    """The coordinator, for those that connect to it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def arrive(self, task: str, incarnation: str) -> str | None:
        """Admits each task once."""
        return self._coordinator.members.arrive(task, incarnation)

    def serve(self, task: str, incarnation: str, frames: FrameSocket) -> None:
        """Serves a task until its connection ends."""
        connection = self._coordinator.members.connect(task, incarnation, frames.close)
        try:
            while True:
                kind, first, size = frames.read_header()
                if kind == BEAT:
                    self._coordinator.members.beat(task)
                elif kind == MESSAGE:
                    message = decode(frames.read(first), size, frames.read_into)
                    frames.send(encode(self._coordinator.requests.handle(task, message)))
                else:
                    raise ProtocolError(f"a frame of kind {kind}")
        finally:
            self._coordinator.members.leave(task, connection)
