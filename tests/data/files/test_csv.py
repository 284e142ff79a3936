from __future__ import annotations

import csv as standard
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.data._files import csv
from lockstep.data._files.csv import columns_of, open_csv
from lockstep.errors import ArgumentError, InputError
from tests.data.files.reading import check_positions, elements

files = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = [np.float32, np.int32]
TEXTS = [bytes, "string"]  # the second is a default
REQUIRED = [bytes, bytes]


def read(path: Path, content: bytes, defaults: list[Any], **options: Any) -> list[Any]:
    path.write_bytes(content)
    return elements(open_csv(path, defaults, **options))


# What tf.data.experimental.CsvDataset of TensorFlow 2.15 yields.
TENSORFLOW: list[tuple[bytes, list[Any], list[Any]]] = [
    (b"1,2\r\n3,4", NUMBERS, [(1, 2), (3, 4)]),
    (b" 1 , 2\n", NUMBERS, [(1, 2)]),
    (b"inf,-2\n", NUMBERS, [(np.inf, -2)]),
    (b"1e400,1\n", NUMBERS, [(np.inf, 1)]),
    (b'"1",2\n', NUMBERS, [(1, 2)]),
    (b"1\n\n3", [[0.0]], [(1,), (0,), (3,)]),
    (b"a\n\nb\n", [["x"]], [(b"a",), (b"x",), (b"b",)]),
    (b"a,b\rc,d", REQUIRED, [(b"a", b"b"), (b"c", b"d")]),
    (b'"a,b",c\n"d\ne",f\n', REQUIRED, [(b"a,b", b"c"), (b"d\ne", b"f")]),
    (b'"a""b",c\n', REQUIRED, [(b'a"b', b"c")]),
    (b'"",""\n', [[1.5], ["d"]], [(1.5, b"d")]),
    (b",\n", [1.5, 7], [(1.5, 7)]),
    (b"a\0b,c\n", REQUIRED, [(b"a\0b", b"c")]),
]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize(("content", "defaults", "rows"), TENSORFLOW)
def test_records_are_those_of_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, content: bytes, defaults: list[Any], rows: list[Any]
) -> None:
    monkeypatch.setattr(csv, "_CHUNK", chunk)
    assert read(tmp_path / "a", content, defaults) == rows
    check_positions(lambda: open_csv(tmp_path / "a", defaults), [1])


@pytest.mark.parametrize(
    ("content", "defaults", "message"),
    [
        (b"1,2\n\n", NUMBERS, "line 2: 2 fields are expected, one per column; it has 1"),
        (b"1,2,3\n", NUMBERS, "line 1: 2 fields are expected"),
        (b"1,\n", NUMBERS, "line 1, column 1: the field is empty but required"),
        (b"1,2\n1,x\n", NUMBERS, "line 2, column 1: 'x' is no int32"),
        (b"1_0,2\n", NUMBERS, "line 1, column 0: '1_0' is no float32"),
        (b"1,3.0\n", NUMBERS, "line 1, column 1: '3.0' is no int32"),
        (b"1,99999999999\n", NUMBERS, "line 1, column 1: '99999999999' is no int32"),
        (b'a"b,c\n', REQUIRED, "line 1 is broken: its quotes"),
        (b'a,b\n"a"b,c\n', REQUIRED, "line 2 is broken: its quotes"),
        (b'"a\n\n",b\n"a,c\n', REQUIRED, "line 4 is broken: its quotes"),
    ],
)
def test_bad_records_name_line_and_column(tmp_path: Path, content: bytes, defaults: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=f"{re.escape(str(tmp_path / 'a'))}, {message}"):
        read(tmp_path / "a", content, defaults)


def test_good_records_before_a_bad_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1,2\n3,4\n5,x\n6,7\n")
    reader = open_csv(tmp_path / "a", NUMBERS)
    portion = reader.read(10)
    assert [list(column) for column in portion] == [[1, 3], [2, 4]]
    assert reader.number == 2
    with pytest.raises(InputError, match="line 3, column 1: 'x'"):
        reader.read(1)
    # As in tf.data, what follows a bad record can be read.
    assert [list(column) for column in reader.read(1)] == [[6], [7]]
    reader.close()


def test_options(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert read(path, b'h,"h\n1",2\n1,2\n', [*NUMBERS], header=True, select_cols=[0, 1]) == [(1, 2)]
    check_positions(lambda: open_csv(path, NUMBERS, header=True, select_cols=[0, 1]), [1])
    assert read(path, b",NA\nNA,x\n", [[2.0], ["z"]], na_value="NA") == [(2, b"z"), (2, b"x")]
    assert read(path, b"1;2;3\n", [np.int64], field_delim=";", select_cols=[2]) == [(3,)]
    assert read(path, b'a"b,"c\n', REQUIRED, use_quote_delim=False) == [(b'a"b', b'"c')]
    assert read(path, b"h\n", [np.float32], header=True) == []


def test_types() -> None:
    defaults = [0.5, 1, "a", b"a", [], [2], np.float64(1), np.array([], np.int64), np.float64, bytes]
    text = np.dtype(object)
    f4, f8, i4, i8 = map(np.dtype, ("f4", "f8", "i4", "i8"))
    types = tuple(column.dtype for column in columns_of(defaults, None, ""))
    assert types == (f4, i4, text, text, f8, i4, f8, i8, f8, text)


@pytest.mark.parametrize(
    "options",
    [
        {"field_delim": ";;"},
        {"field_delim": '"'},
        {"select_cols": [1, 0]},
        {"select_cols": [1]},
        {"compression_type": 1},
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        open_csv(tmp_path / "a", NUMBERS, **options)


@pytest.mark.parametrize("defaults", [[], [True], [np.uint8], [[1, 2]], [None]])
def test_wrong_defaults(tmp_path: Path, defaults: list[Any]) -> None:
    with pytest.raises(ArgumentError):
        open_csv(tmp_path / "a", defaults)


def test_an_empty_file_has_no_header(tmp_path: Path) -> None:
    assert read(tmp_path / "a", b"", NUMBERS) == []
    with pytest.raises(InputError, match="has no header"):
        read(tmp_path / "a", b"", NUMBERS, header=True)


@files
@given(
    st.lists(st.tuples(st.text(st.sampled_from('ab,"\n\r é')), st.integers(-(2**31), 2**31 - 1)), max_size=20),
    st.lists(st.integers(1, 9), max_size=6),
)
def test_what_the_standard_library_writes_is_read(
    tmp_path: Path, rows: list[tuple[str, int]], limits: list[int]
) -> None:
    text = io.StringIO(newline="")
    standard.writer(text).writerows(rows)
    expected = [(field.encode(), number) for field, number in rows]
    assert read(tmp_path / "a", text.getvalue().encode(), ["", np.int32]) == expected
    check_positions(lambda: open_csv(tmp_path / "a", ["", np.int32]), limits)
