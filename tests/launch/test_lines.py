"""Bytes to lines, and lines to what may be shown."""

from __future__ import annotations

import fcntl
import itertools
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._launch.console import Outlet, clip, keep_colours, plain
from lockstep._launch.output import LineBuffer

OUTPUT = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\b", "é".encode(), b"\xff", b"\x1b[1m"])).map(b"".join)


def lines(*chunks: bytes) -> list[str]:
    buffer = LineBuffer()
    return [line for chunk in chunks for line in buffer.feed(chunk)] + buffer.close()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"old\rnew\n", ["new"]),
        (b"old\rnew\r\r\n", ["new"]),
        (b"old\b\b\b\rnew\n", ["new"]),
        (b"|\b/\b-\n", ["-"]),
        (b"\b\bx\n", ["x"]),
        (b"kept\b\b\n", ["kept"]),
        (b"last\r", ["last"]),
        (b"\xe9\n", ["\N{REPLACEMENT CHARACTER}"]),
        (b"cut \xc3", ["cut \N{REPLACEMENT CHARACTER}"]),
    ],
)
def test_a_line_is_what_a_terminal_would_show(data: bytes, expected: list[str]) -> None:
    assert lines(data) == expected


@given(OUTPUT, st.lists(st.integers(0, 40)))
def test_it_does_not_matter_where_the_stream_is_cut(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:stop] for start, stop in itertools.pairwise(edges)]
    assert lines(*chunks) == lines(data)


def test_the_unfinished_line_is_known() -> None:
    buffer = LineBuffer()
    seen = []
    for chunk in (b"a", b"b\r", b"\b\b", b"\rnew", b"\n"):
        buffer.feed(chunk)
        seen.append(buffer.unfinished)
    assert seen == ["a", "ab", "ab", "new", ""]


def test_a_progress_bar_without_end_does_not_pile_up() -> None:
    buffer = LineBuffer()
    for step in range(1000):
        assert buffer.feed(b"\r" + b"x" * 1000 + b" %d" % step) == []
    assert sys.getsizeof(buffer._rest) < 5000


def test_a_line_without_end_comes_in_pieces() -> None:
    pieces = lines(*[b"x" * 10_000] * 100)
    assert "".join(pieces) == "x" * 1_000_000
    assert max(map(len, pieces)) < 100_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1mbold\x1b[0m", "bold"),
        ("\x1b[38;5;200mpink", "pink"),
        ("\x1b[2K\x1b[1Aup", "up"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bset \x1b7saved\x1b", "set saved"),
        ("bell\a, nul\0, tab\tstays", "bell, nul, tab\tstays"),
    ],
)
def test_plain_text_has_no_escape_codes(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_coloured_text_keeps_its_colours_to_itself() -> None:
    assert keep_colours("\x1b[31mred\x1b[2K") == "\x1b[31mred\x1b[0m"
    assert keep_colours("none\x1b[2J") == "none"


@given(st.text(alphabet="abc\x1b[]0;m\x07\\\t\r\b\x9bé"))
def test_no_escape_survives(text: str) -> None:
    assert not set(plain(text)) & set("\x1b\x07\r\b\x9b")


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("\x1b[1mabcd\x1b[0m", 3, "\x1b[1mabc\x1b[0m"),
        ("日本語", 5, "日本"),
        ("e\u0301e\u0301e", 2, "e\u0301e\u0301"),
        ("a\tb", 9, "a       b"),
        ("abc", 0, ""),
    ],
)
def test_a_clipped_line_fits(text: str, width: int, expected: str) -> None:
    assert clip(text, width) == expected


def test_an_outlet_keeps_what_its_reader_does_not_take() -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer, {})
    text = "0123456789" * 20_000
    outlet.write(text)
    assert outlet.stalled
    received = b""
    while outlet.stalled:
        received += os.read(reader, 65536)
        outlet.flush(0)
    os.close(writer)
    while data := os.read(reader, 65536):
        received += data
    os.close(reader)
    assert received.decode() == text


def test_an_outlet_without_a_reader_drops_its_text() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    outlet = Outlet(writer, {})
    outlet.write("nobody reads this")
    os.close(writer)
    assert not outlet.stalled


def test_an_outlet_may_have_a_high_number() -> None:
    reader, writer = os.pipe()
    high = fcntl.fcntl(writer, fcntl.F_DUPFD, 1500)
    Outlet(high, {}).write("beyond what select knows")
    os.close(writer)
    os.close(high)
    assert os.read(reader, 100) == b"beyond what select knows"
    os.close(reader)
