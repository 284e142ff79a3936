from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.data._files import records
from lockstep.data._files.records import open_text
from lockstep.errors import DataNotFoundError
from tests.data.files.reading import check_positions, elements

files = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

# What tf.data.TextLineDataset of TensorFlow 2.15 yields.
TENSORFLOW = [
    (b"", []),
    (b"a\nb", [b"a", b"b"]),
    (b"a\rb\r\nc", [b"ab", b"c"]),
    (b"\n\n", [b"", b""]),
    (b"a\r", [b"a"]),
    (b"a\r\r\nb\n", [b"a", b"b"]),
    (b"\r\n", [b""]),
    (b"\r", []),
    (b"a\n\r", [b"a"]),
]


@pytest.mark.parametrize("chunk", [1, 2, 1000])
@pytest.mark.parametrize(("content", "lines"), TENSORFLOW)
def test_lines_are_those_of_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, content: bytes, lines: list[bytes]
) -> None:
    monkeypatch.setattr(records, "_CHUNK", chunk)
    (tmp_path / "a").write_bytes(content)
    assert elements(open_text(tmp_path / "a")) == lines
    check_positions(lambda: open_text(tmp_path / "a"), [1, 1])


@files
@given(st.lists(st.binary(max_size=9)), st.sampled_from(["", "GZIP"]), st.lists(st.integers(1, 9), max_size=6))
def test_every_position_can_be_continued_from(
    tmp_path: Path, pieces: list[bytes], compression: str, limits: list[int]
) -> None:
    content = b"\n".join(pieces)
    (tmp_path / "a").write_bytes(gzip.compress(content) if compression else content)
    found = elements(open_text(tmp_path / "a", compression))
    ends_open = content.rpartition(b"\n")[2].replace(b"\r", b"") != b""
    assert len(found) == content.count(b"\n") + ends_open
    assert b"\n".join(found) == content.replace(b"\r", b"").removesuffix(b"\n") or not any(found[-1:])
    check_positions(lambda: open_text(tmp_path / "a", compression), limits)


def test_a_line_longer_than_a_chunk(tmp_path: Path) -> None:
    lines = [b"a" * 700_000, b"", b"b" * 300_000]
    (tmp_path / "a").write_bytes(b"\n".join(lines))
    assert elements(open_text(tmp_path / "a")) == lines


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="no file"):
        open_text(tmp_path / "none")
