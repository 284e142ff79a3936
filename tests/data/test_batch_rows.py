"""Results that are made where their batch lies are those of results that are copied there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.data import Dataset, _columns
from lockstep.data._batch_rows import BatchRows, address_of, empty
from lockstep.data._columns import ColumnsBuilder
from lockstep.data._image.resize import resize

_SHAPES = st.sampled_from([(2,), (2, 3), ()])
_FLOAT = np.dtype(np.float32)


def _make_array(shape: tuple[int, ...], value: float) -> Any:
    array = empty(shape, _FLOAT)
    array[...] = value
    return array


def test_results_in_their_order_are_not_copied() -> None:
    rows = BatchRows(3)
    builder = ColumnsBuilder(3, rows)
    made = []
    with rows:
        for i in range(3):
            made.append(_make_array((4, 5), i))
            builder.add(made[-1])
    column = builder.columns()
    assert [address_of(row) for row in column] == [address_of(array) for array in made]
    np.testing.assert_array_equal(column[:, 0, 0], [0, 1, 2])


@given(st.lists(st.tuples(st.lists(_SHAPES, max_size=3), st.integers(-1, 2), st.integers(-1, 2)), min_size=1))
def test_any_results(elements: list[tuple[list[tuple[int, ...]], int, int]]) -> None:
    """Each element makes some arrays, and returns two of them, or others."""
    rows = BatchRows(len(elements))
    builder = ColumnsBuilder(len(elements), rows)
    expected = []
    with rows:
        for number, (shapes, *chosen) in enumerate(elements):
            made = [_make_array(shape, 10 * number + i) for i, shape in enumerate(shapes)]
            pair = tuple(made[i] if 0 <= i < len(made) else np.full(2, -number, np.float32) for i in chosen)
            expected.append(tuple(array.copy() for array in pair))
            builder.add(pair)
    columns = builder.columns()
    for number, pair in enumerate(expected):
        for found, array in zip(_columns.element(columns, number), pair, strict=True):
            np.testing.assert_array_equal(found, array, strict=True)


@pytest.mark.parametrize("change", [lambda a: a[::-1], lambda a: a.T, lambda a: a[:, :1], lambda a: a.astype(np.int32)])
def test_other_views_of_a_row_are_copied(change: Callable[[Any], Any]) -> None:
    rows, values = BatchRows(2), np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    builder = ColumnsBuilder(2, rows)
    with rows:
        for value in values:
            array = empty((3, 3), _FLOAT)
            array[...] = value
            builder.add(change(array))
    np.testing.assert_array_equal(builder.columns(), np.stack([change(v) for v in values]), strict=True)


def test_rows_are_those_of_one_thread_and_of_the_innermost_function() -> None:
    outer, inner = BatchRows(2), BatchRows(2)
    with outer:
        first = empty((3,), _FLOAT)
        with inner:
            other = empty((3,), _FLOAT)
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(empty((3,), _FLOAT)))
        thread.start()
        thread.join()
        second = empty((3,), _FLOAT)
        assert address_of(second) == address_of(first) + first.nbytes
        assert empty((3,), _FLOAT).base is None  # There are two rows.
    assert other.base is not first.base and elsewhere[0].base is None and empty((3,), _FLOAT).base is None


_PICTURES = np.random.default_rng(0).integers(0, 256, (7, 9, 11, 3), np.uint8)


def _resize_picture(picture: Any) -> Any:
    return resize(picture, (4, 5))


_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "resized": lambda picture: resize(picture[: 5 + int(picture[0, 0, 0]) % 4], (4, 5)),
    "twice": lambda picture: (resize(picture[: 5 + int(picture[0, 0, 0]) % 4], (4, 5)), resize(picture[:3], (4, 5))),
    "then scaled": lambda picture: resize(picture[: 5 + int(picture[0, 0, 0]) % 4], (4, 5)) / 255,
    "some of them": lambda picture: (
        resize(picture[:7], (4, 5)) if picture[0, 0, 0] % 2 else np.zeros((4, 5, 3), np.float32)
    ),
}


@pytest.mark.parametrize("name", _PROGRAMS)
@pytest.mark.parametrize("threads", [None, 2])
def test_batches_of_resized_pictures(name: str, threads: int | None) -> None:
    program = _PROGRAMS[name]
    batches = list(Dataset.from_tensor_slices(_PICTURES).map(program, num_parallel_calls=threads).batch(3))
    for begin, batch in zip((0, 3, 6), batches, strict=True):
        expected = _columns.stack([program(picture) for picture in _PICTURES[begin : begin + 3]])
        np.testing.assert_equal(batch, expected)


def test_a_program_whose_results_are_others_gets_no_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def next_row(_: BatchRows, shape: tuple[int, ...], dtype: Any) -> Any:
        asked.append(shape)
        return np.empty(shape, dtype)

    monkeypatch.setattr(BatchRows, "next_row", next_row)
    for _ in Dataset.from_tensor_slices(_PICTURES).map(_PROGRAMS["resized"]).batch(3):
        pass
    assert asked == [(4, 5, 3)] * 3


def test_a_program_may_keep_what_it_made_and_change_it() -> None:
    kept: list[Any] = []

    def program(picture: Any) -> Any:
        for array in kept:
            array[...] = -1
        kept.append(_resize_picture(picture))
        return kept[-1]

    found = np.concatenate(list(Dataset.from_tensor_slices(_PICTURES).map(program).batch(3)))
    np.testing.assert_array_equal(found, np.stack([_resize_picture(picture) for picture in _PICTURES]))
