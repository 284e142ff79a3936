from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.data._files.records import open_fixed
from lockstep.errors import ArgumentError, InputError
from tests.data.files.reading import check_positions, elements

files = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@files
@given(
    st.integers(1, 9),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 20),
    st.sampled_from(["", "ZLIB"]),
    st.lists(st.integers(1, 9), max_size=6),
)
def test_records(
    tmp_path: Path, size: int, header: int, footer: int, number: int, compression: str, limits: list[int]
) -> None:
    records = [bytes([index]) * size for index in range(number)]
    content = b"h" * header + b"".join(records) + b"f" * footer
    path = tmp_path / "a"
    path.write_bytes(zlib.compress(content) if compression else content)
    assert elements(open_fixed(path, size, header, footer, compression)) == records
    check_positions(lambda: open_fixed(path, size, header, footer, compression), limits)


def test_chunks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.data._files.records._CHUNK", 5)
    (tmp_path / "a").write_bytes(bytes(range(22)))
    records = [bytes((at, at + 1, at + 2)) for at in range(2, 17, 3)]
    assert elements(open_fixed(tmp_path / "a", 3, 2, 5)) == records


def test_records_longer_than_a_chunk(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 600_000 + b"b" * 600_000)
    assert elements(open_fixed(tmp_path / "a", 600_000)) == [b"a" * 600_000, b"b" * 600_000]


@pytest.mark.parametrize("lengths", [(3, 0, 0), (20, 0, 0), (2, 20, 0), (2, 0, 20)])
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_sizes_that_do_not_divide(tmp_path: Path, lengths: tuple[int, int, int], compression: str) -> None:
    content = bytes(range(10))
    compressor = zlib.compressobj(wbits=31)
    (tmp_path / "a").write_bytes(compressor.compress(content) + compressor.flush() if compression else content)
    with pytest.raises(InputError, match=r"a has \d+ bytes, which is not"):
        elements(open_fixed(tmp_path / "a", *lengths, compression))


@pytest.mark.parametrize("lengths", [(0, 0, 0), (1, -1, 0), (1, 0, -1)])
def test_wrong_lengths(tmp_path: Path, lengths: tuple[int, int, int]) -> None:
    with pytest.raises(ArgumentError, match="at least"):
        open_fixed(tmp_path / "a", *lengths)
