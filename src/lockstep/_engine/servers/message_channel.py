"""Connection on which one task asks another, one request after the other."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from lockstep._engine.runtime.limits import Deadline, Limits
from lockstep._engine.servers.connection import BEAT_FRAME, Caller, FrameSocket
from lockstep._engine.servers.messages import Message, ProtocolError, encode
from lockstep.errors import MissingTaskError, PeerError


@dataclass(eq=False)
class PendingRequest:
    """Holds a request that has been sent, or is to be sent again.

    Attributes:
        message: The request.
        answer: The answer; `None` until it is received.
    """

    message: Message
    answer: Message | None = None


class MessageChannel:
    """Connection on which one task asks another: connects when it is needed, and again when it is lost.

    Args:
        caller: This task.
        task: The other task's name.
        address: Its address.
        limits: For the connection (`join`) and for an answer (`silence`).
    """

    def __init__(self, caller: Caller, task: str, address: str, limits: Limits) -> None:
        self._caller, self.task, self.address, self._limits = caller, task, address, limits
        self._frames: FrameSocket | None = None
        self._asking = threading.Lock()
        # Heartbeats are sent between requests; a frame must not be cut in two.
        self._sending = threading.Lock()
        # Whose answer comes next on the connection.
        self._begun: PendingRequest | None = None
        self._is_closed = False

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        """Sends a request and returns the answer; sends it again on a new connection if this one breaks.

        An answer may take as long as it does, with heartbeats before it.

        Raises:
            MissingTaskError: If the other task cannot be reached for `seconds`, `LOCKSTEP_JOIN_TIMEOUT` by default,
                from its last heartbeat on.
            PeerError: If it refuses the request.
        """
        with self._asking:
            self._settle()
            return self._ask(message, seconds)

    def begin(self, message: Message) -> PendingRequest:
        """Sends a request whose answer `finish` returns later: it is not waited for now."""
        pending = PendingRequest(message)
        with self._asking:
            self._settle()
            if self._frames is not None:
                try:
                    with self._sending:
                        self._frames.send(encode(message))
                    self._begun = pending
                except OSError:
                    self.disconnect()
        return pending

    def finish(self, pending: PendingRequest) -> Message:
        """Returns the answer to a request that has begun, which is sent again if that was lost; raises as `ask`."""
        with self._asking:
            self._settle()
            if pending.answer is None:
                pending.answer = self._ask(pending.message, None)
            return pending.answer

    def _settle(self) -> None:
        """Receives the answer to the request that has begun, before another one is sent."""
        begun, self._begun = self._begun, None
        if begun is None or self._frames is None:
            return
        try:
            begun.answer = self._frames.read_answer()
        except (OSError, ProtocolError):
            self.disconnect()

    def beat(self) -> None:
        """Sends a heartbeat, if there is a connection."""
        frames = self._frames
        if frames is None or not self._sending.acquire(blocking=False):
            return  # What is being sent is a heartbeat, too.
        try:
            frames.send([BEAT_FRAME])
        except OSError:
            return  # The next request connects again.
        finally:
            self._sending.release()

    def disconnect(self) -> None:
        """Closes the connection; the next request opens another."""
        frames, self._frames = self._frames, None
        if frames is not None:
            frames.close()

    def close(self) -> None:
        """Closes the channel; a request that is under way fails."""
        self._is_closed = True
        self.disconnect()

    def frames(self, deadline: Deadline) -> FrameSocket:
        """Returns the connection, made if there is none."""
        if self._frames is None:
            frames = self._caller.connect(self.task, self.address, max(deadline.left, 0.01))
            frames.settimeout(self._limits.silence)
            self._frames = frames
        return self._frames

    def _ask(self, message: Message, seconds: float | None) -> Message:
        deadline = Deadline(self._limits.join if seconds is None else seconds)
        while True:
            began = time.monotonic()
            try:
                return self._ask_once(message, deadline)
            except (OSError, ProtocolError, PeerError) as error:
                frames = self._frames
                if frames is not None and frames.heard > began:
                    deadline = Deadline(deadline.seconds)  # It was alive, and has the time to come back.
                self.disconnect()
                if self._is_closed or not deadline.can_retry:
                    raise MissingTaskError(
                        f"{self.task} ({self.address}) must answer within {deadline.seconds:g} s "
                        f"(LOCKSTEP_JOIN_TIMEOUT). It does not: {error}. Start it, or look at the network between "
                        "the machines."
                    ) from error
                deadline.pause()

    def _ask_once(self, message: Message, deadline: Deadline) -> Message:
        frames = self.frames(deadline)
        with self._sending:
            frames.send(encode(message))
        return frames.read_answer()
