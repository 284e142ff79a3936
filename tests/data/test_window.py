"""window: datasets of neighbouring elements."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.data import INFINITE_CARDINALITY, Dataset, DatasetSpec, TensorSpec
from lockstep.errors import ArgumentError

Pair = namedtuple("Pair", "x y")


def windows(count: int, size: int, shift: int, stride: int, drop: bool) -> list[list[int]]:
    """As TensorFlow's WindowDataset, checked against TensorFlow 2.15 for 7 elements and 96 combinations."""
    found = [list(range(i, min(i + (size - 1) * stride + 1, count), stride)) for i in range(0, count, shift)]
    full = [i + (size - 1) * stride < count for i in range(0, count, shift)]
    return [w for w, f in zip(found, full, strict=True) if f or not drop]


@given(st.integers(0, 12), st.integers(1, 5), st.none() | st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_windows(count: int, size: int, shift: int | None, stride: int, drop: bool) -> None:
    expected = windows(count, size, shift or size, stride, drop)
    dataset = Dataset.range(count).window(size, shift, stride, drop)
    assert [[int(v) for v in w] for w in dataset] == expected
    assert len(dataset) == len(expected)
    assert dataset.element_spec == DatasetSpec(TensorSpec((), np.int64))


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_windows_of_an_unknown_number_of_elements(count: int, size: int, shift: int, drop: bool) -> None:
    dataset = (
        Dataset.range(count).filter(lambda x: x >= 0).window(size, shift, 1, drop).flat_map(lambda w: w.batch(size))
    )
    assert [b.tolist() for b in dataset] == windows(count, size, shift, 1, drop)


def test_windows_of_structures_are_structures_of_datasets() -> None:
    parts = {
        "a": Dataset.range(4),
        "b": (Dataset.from_tensor_slices(["w", "x", "y", "z"]), Pair(Dataset.range(4), Dataset.range(4))),
    }
    dataset = Dataset.zip(parts).window(3)
    first = next(iter(dataset))
    assert [int(v) for v in first["a"]] == [0, 1, 2]
    assert list(first["b"][0]) == [b"w", b"x", b"y"]
    assert isinstance(first["b"][1], Pair)
    assert dataset.element_spec["b"][1].x == DatasetSpec(TensorSpec((), np.int64))

    def joined(element: dict[str, Any]) -> Dataset:
        return Dataset.zip((element["a"].batch(3), element["b"][0].batch(3)))

    assert [a.tolist() for a, _ in dataset.flat_map(joined)] == [[0, 1, 2], [3]]


def test_windows_of_arrays_of_different_shapes() -> None:
    rows = Dataset.range(4).map(lambda i: np.full([int(i)], i))
    padded = rows.window(2).flat_map(lambda w: w.padded_batch(2))
    assert [b.tolist() for b in padded] == [[[0], [1]], [[2, 2, 0], [3, 3, 3]]]


def test_endless_windows() -> None:
    dataset = Dataset.range(3).repeat().window(2, shift=1)
    assert dataset.cardinality() == INFINITE_CARDINALITY
    assert [[int(v) for v in w] for w in dataset.take(4)] == [[0, 1], [1, 2], [2, 0], [0, 1]]


def test_a_window_can_be_read_again() -> None:
    window = next(iter(Dataset.range(3).window(3)))
    assert len(window) == 3
    assert [int(v) for v in window] == [int(v) for v in window] == [0, 1, 2]


@pytest.mark.parametrize("wrong", [{"size": 0}, {"shift": 0}, {"stride": 0}, {"shift": -1}, {"size": -1}])
def test_wrong_windows(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))} must be at least 1"):
        Dataset.range(3).window(**{"size": 2, **wrong})
