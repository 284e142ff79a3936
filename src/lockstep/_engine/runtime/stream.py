"""A byte stream that outlives the network connection that carries it.

Each side numbers the bytes it sends and keeps them until the other side has acknowledged them, which it does when it
has passed them on. When a connection is replaced by another one, both sides first say how much they have received, and
go on from there: no byte is lost, none comes twice.
"""

from __future__ import annotations

import struct

# Of a frame: how many bytes its sender has received, or passed on; how many bytes of data follow.
_HEADER = struct.Struct("!QI")
_END = (1 << 32) - 1
_MAX_FRAME = 1 << 16


class StreamError(Exception):
    """Error of a peer that does not continue this stream; it is never shown to users."""


class Stream:
    """Endpoint of a stream: the bytes that are not acknowledged, and the frames of the current connection.

    Attributes:
        passed_on: How many bytes of the other side the owner has passed on; it adds to this.
        has_ended: Set when the other side has sent its last byte.
    """

    def __init__(self) -> None:
        self.passed_on = 0
        self.has_ended = False
        self._received = 0
        self._kept = bytearray()
        # The position in the stream of the first byte that is kept, and of the first that is not framed.
        self._acknowledged = self._framed = 0
        self._ends = False
        self._acknowledged_to_peer = 0
        self._partial = bytearray()
        self._is_resumed = False

    @property
    def unacknowledged(self) -> int:
        """The number of bytes that are kept until the other side acknowledges them."""
        return len(self._kept)

    @property
    def owes_acknowledgement(self) -> bool:
        """Returns whether much was passed on since the other side was last told how much."""
        return self.passed_on - self._acknowledged_to_peer >= _MAX_FRAME

    def begin(self) -> bytes:
        """Starts on a new connection; returns what to send first."""
        self._partial.clear()
        self._is_resumed = False
        self._acknowledged_to_peer = self._received
        return _HEADER.pack(self._received, 0)

    def add(self, data: bytes) -> None:
        """Appends bytes for the other side."""
        self._kept += data

    def end(self) -> None:
        """Ends this side after the bytes that were added so far."""
        self._ends = True

    def acknowledgement(self) -> bytes:
        """Returns a frame without data, which also shows that this side is alive."""
        self._acknowledged_to_peer = self.passed_on
        return _HEADER.pack(self.passed_on, 0)

    def frames(self) -> bytes:
        """Returns the frames to send on this connection; none before the other side has said how far it got."""
        if not self._is_resumed:
            return b""
        frames = bytearray()
        stop = self._acknowledged + len(self._kept)
        while self._framed < stop:
            at = self._framed - self._acknowledged
            data = self._kept[at : at + _MAX_FRAME]
            frames += _HEADER.pack(self.passed_on, len(data)) + data
            self._framed += len(data)
        if self._ends:
            frames += _HEADER.pack(self.passed_on, _END)
            self._ends = False
        if frames:
            self._acknowledged_to_peer = self.passed_on
        return bytes(frames)

    def take(self, data: bytes) -> bytes:
        """Parses frames that have come on this connection; returns the bytes of the stream in them.

        Raises:
            StreamError: If the other side does not continue this stream.
        """
        self._partial += data
        taken = bytearray()
        while len(self._partial) >= _HEADER.size:
            position, length = _HEADER.unpack_from(self._partial)
            self._acknowledge(position)
            if length == _END:
                self.has_ended = True
                break
            if length > _MAX_FRAME:
                raise StreamError(f"a frame of {length} bytes")
            if len(self._partial) < _HEADER.size + length:
                break
            taken += self._partial[_HEADER.size : _HEADER.size + length]
            del self._partial[: _HEADER.size + length]
            self._received += length
        return bytes(taken)

    def _acknowledge(self, position: int) -> None:
        """Drops the bytes that the other side has passed on; on a new connection, rewinds to what it has received."""
        stop = self._acknowledged + len(self._kept)
        if position > stop or (position < self._acknowledged and not self._is_resumed):
            raise StreamError(f"position {position} of {self._acknowledged} to {stop}")
        if position > self._acknowledged:
            del self._kept[: position - self._acknowledged]
            self._acknowledged = position
        if not self._is_resumed:
            self._is_resumed = True
            self._framed = position
