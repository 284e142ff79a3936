from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.data._files.parquet import open_parquet
from lockstep.errors import ArgumentError, DataNotFoundError, InputError, UnsupportedError
from tests.data.files.reading import check_positions, elements, same

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
files = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
OBJECT = np.dtype(object)


def write(path: Path, columns: dict[str, Any], rows: int = 4) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=rows)
    return path


@pytest.mark.slow
@files
@given(
    st.lists(st.tuples(st.integers(-100, 100), st.text(max_size=3), st.lists(st.integers(0, 9), max_size=2))),
    st.integers(1, 5),
    st.lists(st.integers(1, 9), max_size=4),
)
def test_rows(tmp_path: Path, rows: list[tuple[int, str, list[int]]], group: int, limits: list[int]) -> None:
    numbers, texts, lists = ([row[index] for row in rows] for index in range(3))
    columns = {"n": pa.array(numbers, pa.int32()), "t": pa.array(texts, pa.string())}
    path = write(tmp_path / "a", {**columns, "l": pa.array(lists, pa.list_(pa.int64()))}, group)
    expected = [{"n": n, "t": t.encode(), "l": np.array(li, np.int64)} for n, t, li in rows]
    same(elements(open_parquet(path)), expected)
    check_positions(lambda: open_parquet(path), limits)


def test_kinds_of_columns(tmp_path: Path) -> None:
    columns = {
        "float": pa.array([1.5, None, 2.5], pa.float32()),
        "flag": pa.array([True, False, True]),
        "blob": pa.array([b"a", b"", b"\0"], pa.binary()),
        "fixed": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.uint8(), 2)),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "pair": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}]),
        "words": pa.array([["a", "b"], ["c", "d"], []], pa.list_(pa.string())),
    }
    path = write(tmp_path / "a", columns)
    found = elements(open_parquet(path))
    np.testing.assert_array_equal([row["float"] for row in found], [1.5, np.nan, 2.5])
    assert [bool(row["flag"]) for row in found] == [True, False, True]
    assert [row["blob"] for row in found] == [b"a", b"", b"\0"]
    assert [list(row["fixed"]) for row in found] == [[1, 2], [3, 4], [5, 6]]
    assert [row["word"] for row in found] == [b"x", b"y", b"x"]
    assert found[1]["pair"] == {"a": 2, "b": b"y"}
    assert [list(row["words"]) for row in found] == [[b"a", b"b"], [b"c", b"d"], []]
    reader = open_parquet(path)
    reader.close()
    assert reader.spec == {
        "float": ((), np.dtype("f4")),
        "flag": ((), np.dtype(bool)),
        "blob": ((), OBJECT),
        "fixed": ((2,), np.dtype("u1")),
        "word": ((), OBJECT),
        "pair": {"a": ((), np.dtype("i8")), "b": ((), OBJECT)},
        "words": ((None,), OBJECT),
    }


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "a", {"a": [1], "b": [datetime.date(2020, 1, 1)]})
    assert elements(open_parquet(path, ["a"])) == [{"a": 1}]
    with pytest.raises(UnsupportedError, match="column 'b' is of the type date32"):
        open_parquet(path)
    for columns in (["c"], []):
        with pytest.raises(ArgumentError, match="has the columns a, b"):
            open_parquet(path, columns)


@pytest.mark.parametrize("values", [[1, None], ["a", None], [[1], None], [[1], [None]], [{"x": 1}, {"x": None}]])
def test_missing_values_are_refused(tmp_path: Path, values: list[Any]) -> None:
    with pytest.raises(InputError, match=r"column 'v(\.x)?' has no value in row 1"):
        elements(open_parquet(write(tmp_path / "a", {"v": values})))


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError):
        open_parquet(tmp_path / "none")
    path = write(tmp_path / "a", {"a": list(range(100))})
    (tmp_path / "b").write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match="whole Parquet file"):
        open_parquet(tmp_path / "b")
    reader = open_parquet(path)
    with pytest.raises(InputError, match="has 100 rows"):
        reader.seek(101)
    reader.close()
