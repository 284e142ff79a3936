"""cache: elements computed once and kept, in memory and in files."""

from __future__ import annotations

import gc
import itertools
import json
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from lockstep.data import Dataset
from lockstep.errors import InputError
from tests.data.test_reading import wait_until

Pair = namedtuple("Pair", "x y")


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where elements are kept."""
    return "" if request.param == "memory" else str(tmp_path / "kept")


class Calls(list[int]):
    """A function that remembers its calls."""

    def __call__(self, x: Any) -> Any:
        self.append(int(x))
        return x * 2


def values(dataset: Any, most: int | None = None) -> list[int]:
    return [int(v) for v in itertools.islice(dataset, most)]


def test_each_element_is_computed_once(place: str) -> None:
    calls = Calls()
    dataset = Dataset.range(50).map(calls).cache(place)
    for _ in range(3):
        assert values(dataset) == list(range(0, 100, 2))
    assert values(dataset.shuffle(50).batch(7).unbatch().take(3).repeat(2))
    assert calls == list(range(50))
    assert len(dataset) == 50


def test_a_first_pass_that_stops_half_way_is_continued(place: str) -> None:
    calls = Calls()
    dataset = Dataset.range(20).map(calls).cache(place)
    assert values(dataset, 7) == list(range(0, 14, 2))
    assert len(calls) == 7
    assert values(dataset) == list(range(0, 40, 2))
    assert calls == list(range(20))


def test_two_iterators_at_once(place: str) -> None:
    calls = Calls()
    dataset = Dataset.range(20).map(calls).cache(place)
    one, other = iter(dataset), iter(dataset)
    found: list[list[int]] = [[], []]
    for turn in range(40):
        which = turn % 3 == 0
        found[which] += values((one, other)[which], 1)
    found[0] += values(one)
    found[1] += values(other)
    assert found == [list(range(0, 40, 2))] * 2
    assert calls == list(range(20))


def test_what_comes_after_a_cache_is_done_on_each_pass(place: str) -> None:
    dataset = Dataset.range(30).cache(place).shuffle(30)
    assert values(dataset) != values(dataset)
    before = Dataset.range(30).shuffle(30).cache(place + "2" if place else "")
    assert values(before) == values(before)


def test_nothing(place: str) -> None:
    dataset = Dataset.range(0).cache(place)
    assert values(dataset) == values(dataset) == []
    assert values(Dataset.range(0).cache(place)) == []


def test_many_kinds_of_elements(place: str) -> None:
    def kinds(i: Any) -> Any:
        k = int(i)
        return {
            "text": f"t{k}",
            "texts": ["a"] * k,
            "ragged": np.full([k, 2], k, np.int16),
            "pair": Pair(np.float64(k), None),
            "tuple": (np.bool_(k % 2), np.full(3, k, np.uint8)),
        }

    def shown(dataset: Dataset) -> Any:
        return [jax.tree.map(lambda v: (np.asarray(v).tolist(), np.asarray(v).dtype), e) for e in dataset]

    plain = Dataset.range(1, 6).map(kinds)
    dataset = plain.cache(place)
    assert shown(dataset) == shown(dataset) == shown(plain)
    assert shown(plain.cache(place)) == shown(plain)
    assert isinstance(next(iter(plain.cache(place)))["pair"], Pair)
    assert dataset.element_spec == plain.element_spec


@pytest.mark.slow
def test_many_threads_share_a_cache(place: str) -> None:
    calls = Calls()
    dataset = Dataset.range(400).map(calls).map(lambda x: x + 1).cache(place)
    expected = list(range(1, 801, 2))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: values(dataset.batch(n + 1).unbatch()), range(16)))
    assert found == [expected] * 16
    assert calls == list(range(400))


def test_a_new_dataset_uses_the_files(tmp_path: Path) -> None:
    calls, again = Calls(), Calls()
    path = tmp_path / "a" / "b"
    assert values(Dataset.range(9).map(calls).cache(str(path))) == list(range(0, 18, 2))
    assert sorted(p.name for p in path.parent.iterdir()) == ["b"]
    assert values(Dataset.range(9).map(again).cache(path)) == list(range(0, 18, 2))
    assert (len(calls), len(again)) == (9, 0)


def test_two_datasets_that_write_the_same_files(tmp_path: Path) -> None:
    datasets = [Dataset.range(9).cache(str(tmp_path / "kept")) for _ in range(2)]
    iterators = [iter(d) for d in datasets]
    for _ in range(9):
        assert len({int(next(i)) for i in iterators}) == 1
    for iterator in iterators:
        assert next(iterator, None) is None
    for dataset in (*datasets, Dataset.range(0).cache(str(tmp_path / "kept"))):
        assert values(dataset) == list(range(9))


def test_an_unfinished_cache_leaves_no_files(tmp_path: Path) -> None:
    dataset = Dataset.range(100).cache(str(tmp_path / "kept"))
    iterator = iter(dataset)
    assert values(iterator, 5) == [0, 1, 2, 3, 4]
    assert [p.name.endswith(".partial") for p in tmp_path.iterdir()] == [True]
    del iterator, dataset
    # A thread may still be computing elements.
    wait_until(lambda: gc.collect() >= 0 and not list(tmp_path.iterdir()))


def changed(path: Path, name: str, change: Any) -> None:
    file = path / name
    file.write_bytes(change(file.read_bytes()))


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("0.data", lambda b: b[:-1], "71 bytes instead of 72"),
        ("0.data", lambda b: b[:-1] + b"x", "wrong checksum"),
        ("cache.json", lambda b: b[:-5], "JSONDecodeError"),
        ("cache.json", lambda b: b.replace(b"cache 1", b"cache 9"), "its format is"),
        ("cache.json", lambda b: json.dumps({"format": "lockstep cache 1"}).encode(), "KeyError"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, change: Any, error: str) -> None:
    path = tmp_path / "kept"
    list(Dataset.range(9).cache(str(path)))
    changed(path, name, change)
    with pytest.raises(InputError, match=f"kept must be what cache.*{error}.*Remove it"):
        list(Dataset.range(9).cache(str(path)))


def test_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(InputError, match="kept must be what cache"):
        list(Dataset.range(9).cache(str(tmp_path / "kept")))
    assert (tmp_path / "kept").read_text() == "mine"
