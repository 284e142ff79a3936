"""save, load and snapshot: what is read is what was written, to the bit, and files appear when they are complete."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.data import Dataset, TensorSpec
from lockstep.errors import ArgumentError, DataNotFoundError, InputError, UnsupportedError
from tests.data.chains import shown

Pair = namedtuple("Pair", "a b")


def read(dataset: Dataset) -> list[Any]:
    return [shown(e) for e in dataset.as_numpy_iterator()]


def mixed(count: int = 7) -> Dataset:
    dataset = Dataset.from_tensor_slices(
        {"z": np.arange(count), "a": (np.arange(count, dtype=np.float16), [b"x\0" * i for i in range(count)])}
    )
    return dataset.map(lambda e: dict(e, ragged=np.full((int(e["z"]), 2), 1j, np.complex64)))


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_what_was_saved_is_loaded(tmp_path: Path, compression: str | None) -> None:
    mixed().save(str(tmp_path / "new" / "data"), compression)
    loaded = Dataset.load(tmp_path / "new" / "data", compression=compression)
    assert read(loaded) == read(mixed())
    assert list(loaded.element_spec) == ["z", "a", "ragged"]
    assert loaded.element_spec["ragged"] == TensorSpec([None, 2], np.complex64)
    assert loaded.cardinality() == 7
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["data"]


def test_the_shards_go_to_the_reader(tmp_path: Path) -> None:
    Dataset.range(10).save(tmp_path, shard_func=lambda x: x % 3)
    assert [int(v) for v in Dataset.load(tmp_path)] == list(range(10))
    assert Dataset.load(tmp_path).cardinality() == 10
    one_by_one = Dataset.load(tmp_path, reader_func=lambda shards: shards.flat_map(lambda s: s))
    assert [int(v) for v in one_by_one] == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    turns = Dataset.load(tmp_path, reader_func=lambda shards: shards.interleave(lambda s: s, cycle_length=3))
    assert [int(v) for v in turns] == list(range(10))
    iterator = turns.as_numpy_iterator()
    taken = [int(next(iterator)) for _ in range(4)]
    again = Dataset.load(tmp_path, reader_func=lambda shards: shards.interleave(lambda s: s, cycle_length=3))
    other = again.as_numpy_iterator()
    other.set_state(json.loads(json.dumps(iterator.get_state())))
    assert taken + [int(v) for v in other] == list(range(10))


def test_a_saved_dataset_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    for count in (3, 5):
        Dataset.range(count).save(tmp_path / "data")
    assert [int(v) for v in Dataset.load(tmp_path / "data")] == [0, 1, 2, 3, 4]
    Dataset.range(0).save(tmp_path / "data")
    assert read(Dataset.load(tmp_path / "data")) == []
    assert Dataset.load(tmp_path / "data").element_spec == TensorSpec([], np.int64)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "note.txt").write_text("kept")
    with pytest.raises(ArgumentError, match="holds something else"):
        Dataset.range(3).save(tmp_path / "notes")


def test_a_dataset_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken(x: Any) -> Any:
        if int(x) == 3:
            raise ValueError("three")
        return x

    with pytest.raises(InputError, match="three"):
        Dataset.range(5).map(broken).save(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_named_tuples_need_their_spec(tmp_path: Path) -> None:
    Dataset.from_tensor_slices(Pair(np.arange(3), np.arange(3.0))).save(tmp_path / "data")
    with pytest.raises(ArgumentError, match="Pass element_spec"):
        Dataset.load(tmp_path / "data")
    spec = Pair(TensorSpec([], np.int64), TensorSpec([], np.float64))
    assert next(iter(Dataset.load(tmp_path / "data", spec))) == Pair(0, 0.0)
    with pytest.raises(ArgumentError, match="element_spec must be"):
        Dataset.load(tmp_path / "data", TensorSpec([], np.int64))


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"dataset\.json"):
        Dataset.load(tmp_path)
    Dataset.range(3).save(tmp_path)
    with pytest.raises(ArgumentError, match="compression must be that of the saved"):
        Dataset.load(tmp_path, compression="GZIP")
    with pytest.raises(UnsupportedError, match="NONE"):
        Dataset.range(3).save(tmp_path, "SNAPPY")
    with pytest.raises(UnsupportedError, match="checkpoint_args"):
        Dataset.range(3).save(tmp_path, checkpoint_args={"directory": "x"})
    with pytest.raises(InputError, match="number of a shard"):
        Dataset.range(3).save(tmp_path, shard_func=lambda x: -1)
    (tmp_path / "dataset.json").write_text("{")
    with pytest.raises(InputError, match="no dataset that can be read"):
        Dataset.load(tmp_path)


def test_a_snapshot_computes_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def double(x: Any) -> Any:
        calls.append(int(x))
        return x * 2

    dataset = Dataset.range(4).map(double).snapshot(str(tmp_path / "snap"))
    assert dataset.cardinality() == 4
    iterator = dataset.as_numpy_iterator()
    next(iterator)
    iterator.close()
    assert not (tmp_path / "snap").exists()
    for _ in range(3):
        assert [int(v) for v in dataset] == [0, 2, 4, 6]
    assert calls == [0, 0, 1, 2, 3]
    assert [int(v) for v in Dataset.range(9).snapshot(tmp_path / "snap")] == [0, 2, 4, 6]


def test_a_snapshot_read_by_a_function_has_one_order(tmp_path: Path) -> None:
    dataset = Dataset.range(6).snapshot(
        tmp_path / "snap",
        "GZIP",
        reader_func=lambda shards: shards.interleave(lambda s: s, cycle_length=2, block_length=2),
        shard_func=lambda x: x % 2,
    )
    assert [[int(v) for v in dataset] for _ in range(2)] == [[0, 2, 1, 3, 4, 5]] * 2


def test_a_snapshot_continues_at_a_position(tmp_path: Path) -> None:
    dataset = Dataset.range(9).shuffle(9, seed=1).snapshot(tmp_path / "snap")
    expected = [int(v) for v in Dataset.range(9).shuffle(9, seed=1)]
    for _ in range(2):
        iterator = dataset.as_numpy_iterator()
        taken = [int(next(iterator)) for _ in range(4)]
        position = json.loads(json.dumps(iterator.get_state()))
        assert taken + [int(v) for v in iterator] == expected
        other = Dataset.range(9).shuffle(9, seed=1).snapshot(tmp_path / "snap").as_numpy_iterator()
        other.set_state(position)
        assert taken + [int(v) for v in other] == expected
