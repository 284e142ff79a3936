"""Sockets between the processes of a machine: one says to all others that its part of a round is written.

The kernel tells at once when a process at the other end has ended, however it has.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping, Sequence

from lockstep.errors import MismatchError, MissingTaskError, PeerError

_MESSAGE = struct.Struct("=qq")
_GIVEN_UP = _MESSAGE.pack(-1, -1)
_LONGEST = 4096
_SLICE_SECONDS = 1


class Links:
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

    def tell(self, number: int, site: int) -> None:
        """Says to all others that this process' part of round `number`, of a sum at `site`, is there to be read."""
        message = _MESSAGE.pack(number, site)
        for other, s in self._sockets.items():
            try:
                s.send(message)
            except OSError:
                # What it has sent before it ended can still be read.
                self._demand_open(other)

    def hear(self, other: int, number: int) -> int:
        """Returns the site of which `other` has written its part of round `number`.

        Raises:
            PeerError: If its process has ended, or has given up.
            MissingTaskError: If it does not get there in time.
            MismatchError: If it is somewhere else.
        """
        deadline = time.monotonic() + self.seconds
        while not (message := self._receive(other)):
            if time.monotonic() > deadline:
                raise self.late([self.process], other)
        told, site = _MESSAGE.unpack(message)
        if told != number:
            raise MismatchError(
                f"All tasks must add up the same values in the same order. {self.names[other]} is at sum {told}, "
                f"{self.names[self.process]} at {number}. Look for a condition in the program that depends on the task."
            )
        return site

    def give_up(self, reason: str) -> None:
        """Closes all sockets, and lets the others know why: they would take this process for the one that failed."""
        message = _GIVEN_UP + reason.encode()[: _LONGEST - _MESSAGE.size]
        for s in self._sockets.values():
            with contextlib.suppress(OSError):  # It has gone, or has not read for long.
                s.send(message, socket.MSG_DONTWAIT)
        self.close()

    def close(self) -> None:
        """Closes all sockets; a thread that waits for one is woken."""
        for s in self._sockets.values():
            with contextlib.suppress(OSError):  # The other end has gone.
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def forget(self) -> None:
        """Gives the sockets up, in a process that has inherited them; the connections stay."""
        for s in self._sockets.values():
            s.close()

    def _receive(self, other: int) -> bytes | None:
        """The next message, or `None` if none comes for a while."""
        try:
            message = self._read(other)
        except BlockingIOError:
            return None
        if message.startswith(_GIVEN_UP):
            raise PeerError(message[_MESSAGE.size :].decode(errors="replace"))
        return message

    def _demand_open(self, other: int) -> None:
        self._read(other, socket.MSG_PEEK)

    def _read(self, other: int, flags: int = 0) -> bytes:
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
            raise self._gone(other) from error
        if not message:
            raise self._gone(other)
        return message

    def _gone(self, other: int) -> PeerError:
        return PeerError(
            f"{self.names[other]} has gone: its process ended while {self.names[self.process]} waited for its part of "
            "a sum. Look at what it has printed."
        )

    def late(self, here: Sequence[int], missing: int) -> MissingTaskError:
        """The error of a process that is waited for in vain."""
        return MissingTaskError(
            f"Every task must reach the same sum within {self.seconds:g} s of the first (LOCKSTEP_PEER_TIMEOUT). "
            f"Here: {', '.join(self.names[i] for i in here)}. Missing: {self.names[missing]}. If it only needs longer, "
            "raise the limit; otherwise look at what it is doing."
        )
