"""batch, padded_batch, unbatch and rebatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset, TensorSpec
from lockstep.errors import ArgumentError, InputError


def lists(dataset: Dataset) -> list[Any]:
    return [v.tolist() for v in dataset]


def ragged(count: int, start: int = 0) -> Dataset:
    """Arrays of 0, 1, 2 ... elements."""
    return Dataset.range(start, start + count).map(lambda i: np.full([int(i)], i))


@given(st.integers(0, 20), st.integers(1, 8), st.booleans())
def test_batch(count: int, size: int, drop: bool) -> None:
    dataset = Dataset.range(count).batch(size, drop_remainder=drop)
    expected = [list(range(i, min(i + size, count))) for i in range(0, count, size)]
    if drop:
        expected = [b for b in expected if len(b) == size]
    assert lists(dataset) == expected
    assert len(dataset) == len(expected)
    exact = drop or count % size == 0
    assert dataset.element_spec == TensorSpec((size if exact else None,), np.int64)


def test_batches_of_structures() -> None:
    dataset = Dataset.zip((Dataset.range(3), {"a": Dataset.from_tensor_slices(["x", "y", "z"]), "n": Dataset.range(3)}))
    numbers, rest = next(iter(dataset.map(lambda i, d: (i, {**d, "none": None})).batch(3)))
    assert numbers.tolist() == rest["n"].tolist() == [0, 1, 2]
    assert rest["a"].tolist() == [b"x", b"y", b"z"]
    assert rest["none"] is None


def test_batches_of_batches() -> None:
    assert lists(Dataset.range(8).batch(2).batch(2)) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    with pytest.raises(InputError, match=r"\(2,\) and, at the batch from element 6 to element 6, \(1,\)"):
        list(Dataset.range(7).batch(2).batch(2))


def test_elements_of_a_batch_must_have_one_shape() -> None:
    assert lists(ragged(4).batch(1)) == [[[]], [[1]], [[2, 2]], [[3, 3, 3]]]
    doubled = Dataset.range(6).map(lambda i: np.full([int(i) // 2], i))
    assert lists(doubled.batch(2)) == [[[], []], [[2], [3]], [[4, 4], [5, 5]]]
    with pytest.raises(InputError, match=r"same shape. Received: \(0,\) and, at element 1, \(1,\)"):
        list(ragged(4).batch(2))


@pytest.mark.parametrize("wrong", [0, -1])
@pytest.mark.parametrize("method", ["batch", "padded_batch", "rebatch"])
def test_sizes_of_batches(method: str, wrong: int) -> None:
    with pytest.raises(ArgumentError, match=f"batch_size must be at least 1. Received: {wrong}"):
        getattr(Dataset.range(3), method)(wrong)


def test_padded_to_the_longest_of_the_batch() -> None:
    assert lists(ragged(5).padded_batch(2)) == [[[0], [1]], [[2, 2, 0], [3, 3, 3]], [[4, 4, 4, 4]]]
    assert lists(ragged(5).padded_batch(2, drop_remainder=True)) == [[[0], [1]], [[2, 2, 0], [3, 3, 3]]]
    assert len(ragged(5).padded_batch(2, drop_remainder=True)) == 2


@pytest.mark.parametrize("shape", [[None], [-1], (None,), np.array([-1])])
def test_sizes_left_open(shape: Any) -> None:
    dataset = ragged(4).padded_batch(4, padded_shapes=shape, padding_values=9)
    assert lists(dataset) == [[[9, 9, 9], [1, 9, 9], [2, 2, 9], [3, 3, 3]]]
    assert dataset.element_spec == TensorSpec((4, None), np.int64)


@pytest.mark.parametrize("shape", [[5], (5,), np.array([5]), ([5],)])
def test_sizes_given(shape: Any) -> None:
    dataset = ragged(2, 1).padded_batch(2, padded_shapes=shape, padding_values=np.int64(-1))
    assert lists(dataset) == [[[1, -1, -1, -1, -1], [2, 2, -1, -1, -1]]]
    assert dataset.element_spec == TensorSpec((2, 5), np.int64)


def test_two_axes() -> None:
    arrays = Dataset.from_tensor_slices(np.arange(8.0).reshape(2, 2, 2))
    found = arrays.padded_batch(2, padded_shapes=[3, None], padding_values=9).get_single_element()
    np.testing.assert_array_equal(found, [[[0, 1], [2, 3], [9, 9]], [[4, 5], [6, 7], [9, 9]]])
    assert found.dtype == np.float64


def structured() -> Dataset:
    def element(i: Any) -> Any:
        k = int(i)
        return i, {"text": ["w"] * k, "number": np.float32(k), "flags": np.ones([k, 2], bool)}

    return Dataset.range(1, 3).map(element)


def test_padded_structures() -> None:
    numbers, rest = structured().padded_batch(2).get_single_element()
    assert numbers.tolist() == [1, 2]
    assert rest["text"].tolist() == [[b"w", b""], [b"w", b"w"]]
    assert rest["number"].tolist() == [1.0, 2.0]
    assert rest["flags"].tolist() == [[[True, True], [False, False]], [[True, True], [True, True]]]


def test_structures_of_shapes_and_values() -> None:
    shapes = ([], {"text": [3], "number": [], "flags": [None, 3]})
    values = (None, {"text": "P", "number": None, "flags": True})
    _, rest = structured().padded_batch(2, padded_shapes=shapes, padding_values=values).get_single_element()
    assert rest["text"].tolist() == [[b"w", b"P", b"P"], [b"w", b"w", b"P"]]
    assert rest["flags"].all()
    assert rest["flags"].shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"padded_shapes": [2]}, "only makes elements longer. Received: shape \\(3,\\)"),
        ({"padded_shapes": []}, "0 axes"),
        ({"padded_shapes": [None, None]}, "2 axes"),
        ({"padded_shapes": [-2]}, "must hold sizes"),
        ({"padded_shapes": 3}, "must hold sizes"),
        ({"padded_shapes": ["x"]}, "shape"),
        ({"padded_shapes": ([None], [None])}, "a shape for each of the 1 arrays"),
        ({"padding_values": "x"}, "of the elements' dtype, int64. Received: 'x'"),
        ({"padding_values": 2.5}, "of the elements' dtype, int64"),
        ({"padding_values": np.nan}, "of the elements' dtype, int64"),
        ({"padding_values": [1, 2]}, "of the elements' dtype, int64"),
        ({"padding_values": (1, 2)}, "one for each of the 1 arrays"),
    ],
)
def test_wrong_paddings(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises((ArgumentError, InputError), match=error):
        list(ragged(4).padded_batch(2, **arguments))


def test_wrong_paddings_of_other_dtypes() -> None:
    bytes_ = Dataset.from_tensor_slices(np.ones((2, 2), np.uint8))
    assert bytes_.padded_batch(2, padded_shapes=[3], padding_values=255).get_single_element()[0, 2] == 255
    for dataset, value in ((bytes_, -7), (bytes_, 256), (Dataset.from_tensor_slices([["a"]]), 1)):
        with pytest.raises(ArgumentError, match="of the elements' dtype"):
            list(dataset.padded_batch(2, padded_shapes=[3], padding_values=value))


def test_unbatch() -> None:
    assert [int(v) for v in Dataset.range(7).batch(3).unbatch()] == list(range(7))
    assert list(Dataset.from_tensors(["a", "b"]).unbatch()) == [b"a", b"b"]
    rows = list(Dataset.from_tensors((np.arange(2), {"k": np.arange(4).reshape(2, 2), "n": None})).unbatch())
    assert [(int(a), d["k"].tolist(), d["n"]) for a, d in rows] == [(0, [0, 1], None), (1, [2, 3], None)]
    assert [v.tolist() for v in ragged(4).unbatch()] == [1, 2, 2, 3, 3, 3]
    assert list(Dataset.from_tensor_slices(np.zeros((3, 0))).unbatch()) == []


def test_how_many_rows() -> None:
    assert len(Dataset.range(6).batch(3).unbatch()) == 6
    assert Dataset.range(7).batch(3).unbatch().cardinality() == UNKNOWN_CARDINALITY
    assert Dataset.range(7).repeat().batch(3).unbatch().cardinality() == INFINITE_CARDINALITY
    assert Dataset.range(7).batch(3).unbatch().element_spec == TensorSpec((), np.int64)


@pytest.mark.parametrize("value", [3, (np.arange(3), np.arange(4)), (np.arange(3), 1)])
def test_what_cannot_be_unbatched(value: Any) -> None:
    with pytest.raises(InputError, match="same first axis"):
        list(Dataset.from_tensors(value).unbatch())


@given(st.integers(0, 20), st.integers(1, 6), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.booleans())
def test_rebatch(count: int, before: int, sizes: list[int], drop: bool) -> None:
    rows, expected = list(range(count)), list[list[int]]()
    while rows and not (drop and len(rows) < sizes[len(expected) % len(sizes)]):
        size = sizes[len(expected) % len(sizes)]
        expected.append(rows[:size])
        rows = rows[size:]
    dataset = Dataset.range(count).batch(before).rebatch(sizes if len(sizes) > 1 else sizes[0], drop_remainder=drop)
    assert lists(dataset) == expected
    assert dataset.cardinality() in (len(expected), UNKNOWN_CARDINALITY)
    assert all(dataset.element_spec.is_compatible_with(np.array(b)) for b in expected)


def test_rebatch_of_structures() -> None:
    dataset = Dataset.from_tensor_slices({"a": ["x", "y", "z"], "b": [[1, 2], [3, 4], [5, 6]]}).batch(2).rebatch(3)
    found = dataset.get_single_element()
    assert (found["a"].tolist(), found["b"].tolist()) == ([b"x", b"y", b"z"], [[1, 2], [3, 4], [5, 6]])
    with pytest.raises(ArgumentError, match="batch_size"):
        dataset.rebatch([])
    with pytest.raises(ArgumentError, match=r"at least 1. Received: 0"):
        dataset.rebatch([2, 0])
