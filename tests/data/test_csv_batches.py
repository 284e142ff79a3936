"""make_csv_dataset: names, types and batches are those of TensorFlow 2.15."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.data import Dataset, TensorSpec, make_csv_dataset
from lockstep.errors import ArgumentError, DataNotFoundError, InputError

FIRST = 'x,y,z,w,n\n1,2.5,a,3000000000,\n2,,b,4,\n3,1e40,"c,d",5,nan\n'
SECOND = "x,y,z,w,n\n4,2,q,1,1\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(FIRST)
    (tmp_path / "b.csv").write_text(SECOND)
    return tmp_path


def columns(dataset: Dataset) -> list[Any]:
    return [{k: v.tolist() for k, v in e.items()} for e in dataset.as_numpy_iterator()]


def test_types_are_inferred_and_rows_batched(files: Path) -> None:
    dataset = make_csv_dataset(f"{files}/*.csv", 3, label_name="x", num_epochs=1, shuffle=False)
    dtypes = {"y": np.float64, "z": object, "w": np.int64, "n": object}
    features, label = dataset.element_spec
    assert dict(features) == {k: TensorSpec([None], v) for k, v in dtypes.items()}
    assert label == TensorSpec([None], np.int32)
    (one, one_label), (two, two_label) = list(dataset.as_numpy_iterator())
    assert list(one) == list("yzwn")
    assert one["y"].tolist() == [2.5, 0, 1e40]
    assert one["z"].tolist() == [b"a", b"b", b"c,d"]
    assert one["w"].tolist() == [3000000000, 4, 5]
    assert one["n"].tolist() == [b"", b"", b"nan"]
    assert one_label.tolist() == [1, 2, 3]
    assert two["n"].tolist() == [b"1"]
    assert two_label.tolist() == [4]


def test_columns_are_chosen_and_files_read_in_turns(files: Path) -> None:
    dataset = make_csv_dataset(
        [f"{files}/a.csv", f"{files}/b.csv"],
        2,
        select_columns=["z", "x"],
        shuffle=False,
        num_parallel_reads=2,
        num_epochs=2,
    )
    half = [{"x": [1, 4], "z": [b"a", b"q"]}, {"x": [2, 3], "z": [b"b", b"c,d"]}]
    assert columns(dataset) == half * 2
    by_number = make_csv_dataset(f"{files}/b.csv", 1, select_columns=[3, 0], shuffle=False, num_epochs=1)
    assert columns(by_number) == [{"x": [4], "w": [1]}]


def test_defaults_and_missing_values(files: Path) -> None:
    (files / "c.csv").write_text("1,NA\n,2\n")
    dataset = make_csv_dataset(
        f"{files}/c.csv",
        2,
        column_names=["p", "q"],
        column_defaults=[np.float32, np.int64([7])],
        na_value="NA",
        header=False,
        num_epochs=1,
        shuffle=False,
    )
    with pytest.raises(InputError, match="required"):
        columns(dataset)
    lenient = make_csv_dataset(
        f"{files}/c.csv", 2, ["p", "q"], [-1.0, "?"], na_value="NA", header=False, num_epochs=1, shuffle=False
    )
    assert columns(lenient) == [{"p": [1.0, -1.0], "q": [b"?", b"2"]}]
    (files / "d.csv").write_text("p\n1\nx\n3\n")
    dropped = make_csv_dataset(
        f"{files}/d.csv", 5, column_defaults=[np.int32], num_epochs=1, shuffle=False, ignore_errors=True
    )
    assert columns(dropped) == [{"p": [1, 3]}]


def test_an_endless_shuffle_continues_at_a_position(files: Path) -> None:
    def dataset() -> Any:
        return make_csv_dataset(f"{files}/*.csv", 3, select_columns=["x"], shuffle_seed=5).as_numpy_iterator()

    iterator = dataset()
    seen = [next(iterator)["x"].tolist() for _ in range(5)]
    assert sorted([x for batch in seen for x in batch][:4]) == [1, 2, 3, 4]
    assert all(len(batch) == 3 for batch in seen)
    position = json.loads(json.dumps(iterator.get_state()))
    rest = [next(iterator)["x"].tolist() for _ in range(3)]
    other = dataset()
    other.set_state(position)
    assert [next(other)["x"].tolist() for _ in range(3)] == rest


def test_compressed_files(files: Path) -> None:
    with gzip.open(files / "a.csv.gz", "wt") as file:
        file.write(FIRST)
    dataset = make_csv_dataset(
        f"{files}/a.csv.gz", 3, select_columns=["x"], num_epochs=1, shuffle=False, compression_type="GZIP"
    )
    assert columns(dataset) == [{"x": [1, 2, 3]}]
    with pytest.raises(ArgumentError, match="plain or GZIP"):
        make_csv_dataset(f"{files}/a.csv", 3, compression_type="ZLIB")


def test_wrong_arguments_are_refused(files: Path) -> None:
    path = f"{files}/a.csv"
    (files / "other.txt").write_text("x,other\n1,2\n")
    (files / "twice.txt").write_text("x,x\n1,2\n")
    (files / "short.txt").write_text("x,y\n1\n")
    (files / "empty.txt").write_text("")
    for message, wrong in [
        ("must be one of the columns", {"label_name": "label"}),
        ("must have the same length", {"select_columns": ["x"], "column_defaults": [0, 0]}),
        ("must hold names of columns", {"select_columns": ["label"]}),
        ("must hold numbers from 0 to 4", {"select_columns": [5]}),
        ("name each column once", {"select_columns": ["x", 0]}),
        ("Expected `column_names` or `header`", {"header": False}),
        ("batch_size must be at least 1", {"batch_size": 0}),
    ]:
        with pytest.raises(ArgumentError, match=message):
            make_csv_dataset(path, **{"batch_size": 1, **wrong})
    for message, names in [
        ("same column names", [path, f"{files}/other.txt"]),
        ("duplicate column names: 'x'", f"{files}/twice.txt"),
        ("CSV row 2 of .* has 1 number of fields. Expected: 2", f"{files}/short.txt"),
        ("Is it an empty file", f"{files}/empty.txt"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            make_csv_dataset(names, 1)
    with pytest.raises(DataNotFoundError):
        make_csv_dataset(f"{files}/none*.csv", 1)
