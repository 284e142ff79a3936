"""Sockets between the processes of a machine: one says to all others that its chunk is written.

The kernel tells at once when a process at the other end has ended, however it has.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping, Sequence

from lockstep.errors import MismatchError, MissingTaskError, PeerError

# Number of the chunk, id of the call.
_MESSAGE = struct.Struct("=qq")
_ABORTED = _MESSAGE.pack(-1, -1)
# Bytes of a message: of an abort's reason what is beyond is cut off.
_LONGEST = 4096
_SLICE_SECONDS = 1


class Connections:
    """The connections of this process to the others.

    Args:
        names: Of all processes, in order.
        process: Number of this one.
        sockets: To the others, by their numbers; of type SOCK_SEQPACKET.
        seconds: How long a process that is alive may take to reach the same sum.
    """

    def __init__(
        self, names: Sequence[str], process: int, sockets: Mapping[int, socket.socket], seconds: float
    ) -> None:
        self.names = names
        self.process = process
        self.others = sorted(sockets)
        self._sockets = dict(sockets)
        self.seconds = seconds
        for s in sockets.values():
            s.settimeout(None)
            # A time limit of Python's would cost a second system call for each message.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _SLICE_SECONDS, 0))

    def send(self, number: int, call_id: int) -> None:
        """Says to all others that this process' chunk `number`, of the sum `call_id`, is there to be read."""
        message = _MESSAGE.pack(number, call_id)
        for other, s in self._sockets.items():
            try:
                s.send(message)
            except OSError:
                # What it has sent before it ended can still be read; raises where there is nothing.
                self._read(other, socket.MSG_PEEK)

    def receive(self, other: int, number: int) -> int:
        """Returns the id of the sum of which `other` has written chunk `number`.

        Raises:
            PeerError: If its process has ended, or has aborted.
            MissingTaskError: If it does not get there in time.
            MismatchError: If it is somewhere else.
        """
        deadline = time.monotonic() + self.seconds
        while True:
            try:
                message = self._read(other)
                break
            # Nothing for a second: time to look at the clock.
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise self.late_error([self.process], other) from None
        if message.startswith(_ABORTED):
            raise PeerError(message[_MESSAGE.size :].decode(errors="replace"))
        reached, call_id = _MESSAGE.unpack(message)
        if reached != number:
            raise MismatchError(
                f"All tasks must add up the same values in the same order. {self.names[other]} is at sum {reached}, "
                f"{self.names[self.process]} at {number}. Look for a condition in the program that depends on the task."
            )
        return call_id

    def abort(self, reason: str) -> None:
        """Closes all sockets, and lets the others know why: they would take this process for the one that failed."""
        message = _ABORTED + reason.encode()[: _LONGEST - _MESSAGE.size]
        for s in self._sockets.values():
            # It may have gone, or not have read for long.
            with contextlib.suppress(OSError):
                s.send(message, socket.MSG_DONTWAIT)
        self.close()

    def close(self) -> None:
        """Closes all sockets; a thread that waits for one is woken."""
        for s in self._sockets.values():
            # The other end may have gone.
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def close_in_child(self) -> None:
        """Closes the sockets of a process that has inherited them; the connections stay."""
        for s in self._sockets.values():
            s.close()

    def _read(self, other: int, flags: int = 0) -> bytes:
        """Returns the next message; raises `BlockingIOError` after a second without one, `PeerError` at the end."""
        s = self._sockets[other]
        try:
            try:
                message = s.recv(_LONGEST, flags)
            except ConnectionResetError:
                # It has ended before it read all; the kernel says so once, ahead of what it sent itself.
                message = s.recv(_LONGEST, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._gone_error(other) from error
        if not message:
            raise self._gone_error(other)
        return message

    def _gone_error(self, other: int) -> PeerError:
        return PeerError(
            f"{self.names[other]} has gone: its process ended while {self.names[self.process]} waited for its part of "
            "a sum. Look at what it has printed."
        )

    def late_error(self, here: Sequence[int], missing: int) -> MissingTaskError:
        """Returns the error that names a process which did not come in time."""
        return MissingTaskError(
            f"Every task must reach the same sum within {self.seconds:g} s of the first (LOCKSTEP_PEER_TIMEOUT). "
            f"Here: {', '.join(self.names[i] for i in here)}. Missing: {self.names[missing]}. If it only needs longer, "
            "raise the limit; otherwise look at what it is doing."
        )
