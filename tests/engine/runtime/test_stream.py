"""Streams: every byte arrives once and in order, however often the connection is replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime.stream import Stream, StreamError


class _Wire:
    """Two sides, and what is under way between them."""

    def __init__(self) -> None:
        self.sides = Stream(), Stream()
        self.arrived = bytearray(), bytearray()
        self.reads = True
        self.connect()

    def connect(self) -> None:
        """Replaces the connection: what is under way is lost."""
        self.under_way = [bytearray(side.begin()) for side in self.sides]

    def deliver(self, side: int, count: int) -> None:
        """Has so many bytes of a side arrive at the other."""
        way = self.under_way[side]
        data = bytes(way[:count])
        del way[:count]
        taken = self.sides[1 - side].take(data)
        self.arrived[1 - side].extend(taken)
        if self.reads:
            self.sides[1 - side].passed_on = len(self.arrived[1 - side])
        for i, stream in enumerate(self.sides):
            self.under_way[i] += stream.frames()

    def settle(self) -> None:
        """Delivers everything."""
        while any(self.under_way):
            for side in (0, 1):
                self.deliver(side, 1 << 20)


_EVENTS = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 1), st.integers(1, 200_000)),
    st.tuples(st.just("deliver"), st.integers(0, 1), st.integers(1, 150_000)),
    st.tuples(st.just("acknowledge"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("read"), st.just(0), st.integers(0, 1)),
    st.tuples(st.just("cut"), st.just(0), st.just(0)),
)


@given(events=st.lists(_EVENTS, max_size=40))
def test_every_byte_arrives_once_and_in_order(events: list[tuple[str, int, int]]) -> None:
    wire, said = _Wire(), (bytearray(), bytearray())
    for kind, side, count in events:
        if kind == "say":
            data = bytes((len(said[side]) + i) % 251 for i in range(count % 5000)) * (1 + count // 5000)
            said[side].extend(data)
            wire.sides[side].add(data)
            wire.under_way[side] += wire.sides[side].frames()
        elif kind == "deliver":
            wire.deliver(side, count)
        elif kind == "acknowledge":
            wire.under_way[side] += wire.sides[side].acknowledgement()
        elif kind == "read":
            wire.reads = bool(count)
        else:
            wire.connect()
    wire.settle()
    assert wire.arrived == (said[1], said[0])


def test_what_has_arrived_is_not_kept() -> None:
    wire = _Wire()
    wire.settle()
    wire.sides[0].add(bytes(300_000))
    wire.under_way[0] += wire.sides[0].frames()
    wire.settle()
    assert wire.sides[1].owes_acknowledgement
    wire.under_way[1] += wire.sides[1].acknowledgement()
    wire.settle()
    assert wire.sides[0].unacknowledged == 0 and not wire.sides[1].owes_acknowledgement


def test_an_end_comes_after_all_bytes() -> None:
    wire = _Wire()
    wire.settle()
    wire.sides[0].add(b"last")
    wire.sides[0].end()
    wire.under_way[0] += wire.sides[0].frames()
    wire.settle()
    assert bytes(wire.arrived[1]) == b"last" and wire.sides[1].has_ended


@pytest.mark.parametrize("data", [b"\0" * 7 + b"\1" + b"\0" * 4, b"\0" * 8 + b"\xff\xff\xff\xfe", b"x" * 12])
def test_another_stream_is_not_taken_for_this_one(data: bytes) -> None:
    stream = Stream()
    stream.begin()
    with pytest.raises(StreamError):
        stream.take(data)
