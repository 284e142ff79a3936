from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.data._files.array_record import ArrayRecords
from lockstep.errors import ArgumentError, DataNotFoundError, InputError

module = pytest.importorskip("array_record.python.array_record_module")
files = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, values: list[bytes], group: int = 1) -> Path:
    writer = module.ArrayRecordWriter(str(path), f"group_size:{group}")
    for value in values:
        writer.write(value)
    writer.close()
    return path


@files
@given(st.lists(st.binary(max_size=60), max_size=30), st.integers(1, 4))
def test_what_was_written_is_read(tmp_path: Path, values: list[bytes], group: int) -> None:
    records = ArrayRecords(write(tmp_path / "a", values, group))
    assert len(records) == len(values)
    assert list(records.take(range(len(values)))) == values
    records.close()


def test_random_access(tmp_path: Path) -> None:
    values = [b"%d" % index for index in range(30)]
    paths = [write(tmp_path / "a", values[:11]), write(tmp_path / "b", []), write(tmp_path / "c", values[11:], 3)]
    rows = [29, 0, 11, 10, 10, 12, 5]
    records = ArrayRecords(paths)
    assert list(records.take(rows)) == [values[row] for row in rows]
    assert list(ArrayRecords(paths[0]).take([])) == []
    assert len(records) == 30
    for row in (-1, 30):
        with pytest.raises(ArgumentError, match=f"30 records, .* number {row}"):
            records.take([row])
    records.close()


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError):
        ArrayRecords(tmp_path / "none")
    with pytest.raises(ArgumentError):
        ArrayRecords([])
    whole = write(tmp_path / "a", [b"some record" * 100] * 30).read_bytes()
    for content in (b"", b"no records", whole[:-100], whole[:100]):
        (tmp_path / "b").write_bytes(content)
        with pytest.raises(InputError, match="whole ArrayRecord file"):
            ArrayRecords(tmp_path / "b").take(range(30))
