"""Signs of life of a server while it computes an answer: who has asked waits for as long as they come.

Most answers take a few milliseconds. One that writes a server's rows to a slow file system may take minutes, in which a
requester cannot tell a busy server from a dead one by its silence. So a server sends beats on each connection whose
answer is not there yet. It sends none when nothing moves any more: it answers with an error that says so.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.connection import BEAT_FRAME, FrameSocket

# A beat each second is lost among the frames of training, which takes hundreds of them a second. With a limit of less
# than four seconds there are four beats within it.
_SECONDS = 1.0
_BEATS_WITHIN_LIMIT = 4
Refusal = Callable[[str], Sequence[bytes | memoryview]]


class SignsOfLife:
    """Sends the beats of one server, from a thread that lives as long as there are connections.

    Args:
        server: The server's name, for messages.
        limits: `silence`, after which a requester gives a server up; `progress`, after which a server does so itself.
    """

    def __init__(self, server: str, limits: Limits) -> None:
        self._server, self._limit = server, limits.progress
        self._seconds = min(_SECONDS, limits.silence / _BEATS_WITHIN_LIMIT)
        self._lock = threading.Lock()
        self._answerings: set[Answering] = set()
        self._is_running = False
        self._progress = time.monotonic()

    def note_progress(self) -> None:
        """Notes that a piece of a file has been written or read: what takes long goes on."""
        self._progress = time.monotonic()

    @contextlib.contextmanager
    def connection(self, frames: FrameSocket) -> Generator[Answering]:
        """Gives what stands around each answer of a connection, for as long as that is open."""
        answering = Answering(frames)
        with self._lock:
            self._answerings.add(answering)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="lockstep-signs-of-life", daemon=True).start()
        try:
            yield answering
        finally:
            with self._lock:
                self._answerings.discard(answering)

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds)
            with self._lock:
                answerings = list(self._answerings)
                self._is_running = bool(answerings)
            if not answerings:
                return
            self._look(answerings)

    def _look(self, answerings: Sequence[Answering]) -> None:
        now = time.monotonic()
        busy = [a for a in answerings if (since := a.since) is not None and now - since >= self._seconds]
        # Answers wait for each other, as a pull does for a cut: the oldest says since when nothing has moved.
        oldest = min((since for a in busy if (since := a.since) is not None), default=now)
        still = now - max(oldest, self._progress)
        for answering in busy:
            if still <= self._limit:
                answering.beat()
            else:
                answering.refuse(
                    f"A server goes on with a request within {self._limit:g} s (LOCKSTEP_PROGRESS_TIMEOUT). "
                    f"{self._server} has not for {still:.0f} s: it hangs in a file system that does not answer, or "
                    "lacks the time to compute. Look at its machine."
                )


class Answering:
    """Stands around the answers of one connection, one after another: `with answering.to(refusal): ...`.

    Args:
        frames: The connection.

    Attributes:
        since: Since when an answer is being computed; `None` between two.
    """

    def __init__(self, frames: FrameSocket) -> None:
        self._frames = frames
        # Two threads send: whoever answers, after `since` is `None` again, and the one that sends beats, before.
        self._lock = threading.Lock()
        self._refusal: Refusal | None = None
        self.since: float | None = None

    @contextlib.contextmanager
    def to(self, refusal: Refusal) -> Generator[None]:
        """Notes that an answer is being computed, while this is open.

        Args:
            refusal: Returns the frame of an error, of its text.
        """
        with self._lock:
            self._refusal, self.since = refusal, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._refusal = self.since = None

    def beat(self) -> None:
        """Sends a sign of life, if the answer is not there yet."""
        with self._lock:
            if self._refusal is not None:
                self._send([BEAT_FRAME])

    def refuse(self, text: str) -> None:
        """Answers with an error in place of the answer, and closes the connection, so that the answer cannot come."""
        with self._lock:
            if self._refusal is not None:
                self._send(self._refusal(text))
                self._frames.close()
                # `since` stays until the thread comes back: others that wait for it are refused at once.
                self._refusal = None

    def _send(self, buffers: Sequence[bytes | memoryview]) -> None:
        # Who has asked and is gone: the thread that answers finds out by itself.
        with contextlib.suppress(OSError):
            self._frames.send(buffers)
