"""What comes after a position is what would have come without any interruption, bit for bit."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.data import Dataset
from lockstep.errors import ArgumentError
from tests.data.chains import MOST, SOURCES, STEPS, build, chains, read


def resumed(chain: Any, position: Any) -> Iterator[Any]:
    """A new dataset, as a new process would build it, at a position that went through a file."""
    iterator = build(chain).as_numpy_iterator()
    iterator.set_state(json.loads(json.dumps(position)))
    return iterator


def check(chain: Any, points: list[int]) -> None:
    iterator = build(chain).as_numpy_iterator()
    positions = [iterator.get_state()]
    found: list[Any] = []
    for _ in range(MOST):
        found += read(iterator, 1)
        positions.append(iterator.get_state())
    for point in sorted({min(p, len(found)) for p in points}):
        again = resumed(chain, positions[point])
        assert read(again, len(found) - point or 1) == (found[point:] or read(iterator, 1)), point


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_every_source(source: str) -> None:
    check((source, 17, [], 0), list(range(20)))


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("source", ["slices", "generator"])
def test_every_transformation(step: str, source: str) -> None:
    check((source, 17, [(step, 3)], 0), list(range(0, 60, 4)))
    check((source, 11, [(step, 4), ("repeat", 2), ("shuffle", 3)], 2), list(range(0, 60, 7)))


@pytest.mark.slow
@settings(max_examples=100)
@given(chains, st.lists(st.integers(0, MOST), min_size=1, max_size=3))
@example(("slices", 5, [("cache", 1), ("shuffle", 3), ("repeat", 2), ("filter", 1)], 2), [3])
def test_random_chains(chain: Any, points: list[int]) -> None:
    check(chain, points)


@pytest.mark.slow
@settings(max_examples=40)
@given(chains)
def test_prefetching_and_threads_change_nothing(chain: Any) -> None:
    plain = build(chain).as_numpy_iterator()
    plain.set_state(state := plain.get_state())
    ahead = build(chain).prefetch(3)
    other = ahead.as_numpy_iterator()
    state["plan"] = other.get_state()["plan"]
    other.set_state(state)
    assert read(other, 20) == read(plain, 20)


def test_a_position_before_prefetched_elements() -> None:
    iterator = Dataset.range(100).prefetch(10).as_numpy_iterator()
    assert [int(v) for v in itertools.islice(iterator, 7)] == list(range(7))
    position = iterator.get_state()
    rest = [int(v) for v in iterator]
    iterator.set_state(position)
    assert [int(v) for v in iterator] == rest == list(range(7, 100))


@pytest.mark.slow
def test_a_file_cache_continues(tmp_path: Path) -> None:
    def dataset(name: str) -> Dataset:
        return Dataset.range(30).shuffle(30).map(lambda i: i * 1.5).cache(str(tmp_path / name)).repeat(2).batch(4)

    iterator = dataset("one").as_numpy_iterator()
    for point in range(12):
        position = iterator.get_state()
        rest = read(iterator)
        other = dataset(f"other {point}").as_numpy_iterator()
        other.set_state(position)
        assert read(other) == rest
        iterator.set_state(position)
        next(iterator)


def test_a_position_of_another_dataset_is_refused() -> None:
    position = Dataset.range(10).shuffle(3).batch(2).as_numpy_iterator().get_state()
    with pytest.raises(ArgumentError, match=r"Shuffle\(4, None, True\) instead of Shuffle\(3, None, True\)"):
        Dataset.range(10).shuffle(4).batch(2).as_numpy_iterator().set_state(position)
    with pytest.raises(ArgumentError, match="get_state"):
        Dataset.range(10).as_numpy_iterator().set_state({"nonsense": 1})
