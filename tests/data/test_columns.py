"""Columns made of elements that come one by one are those of all elements at once."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lockstep.data import _columns
from lockstep.data._columns import ColumnsBuilder, Ragged
from lockstep.data._structure import copy_arrays, normalize

_DTYPES = st.sampled_from([np.dtype(t) for t in ("float32", "uint8", "int64", "bool")])
_ARRAYS = arrays.arrays(_DTYPES, arrays.array_shapes(min_dims=0, max_dims=2, max_side=3))
_LEAVES = st.one_of(_ARRAYS, st.binary(max_size=3), st.integers(-5, 5), st.floats(width=32, allow_nan=False))


def _same_or_others(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Returns lists of elements: copies of one, so that shapes and dtypes agree, or any."""
    equal = st.tuples(leaf, st.integers(1, 5)).map(lambda pair: [pair[0]] * pair[1])
    return st.one_of(equal, st.lists(leaf, min_size=1, max_size=5))


def _build(elements: list[Any]) -> Any:
    builder = ColumnsBuilder(len(elements))
    for element in elements:
        own = copy_arrays(element)
        builder.add(own)
        # As a program may that returns the same array each time.
        for leaf in jax.tree.leaves(own):
            if isinstance(leaf, np.ndarray):
                leaf[...] = 1
    return builder.columns()


def _leaves(columns: Any) -> list[Any]:
    rows = [list(c.values) if isinstance(c, Ragged) else [c] for c in jax.tree.leaves(columns)]
    return [leaf for column in rows for leaf in column]


@example([{"a": np.ones(2), "b": (1,)}, {"a": 1, "b": (np.ones(2),)}])
@example([{"a": np.ones(2), "b": (1,)}, {"a": np.ones(2, np.float32), "b": (1.5,)}])
@given(_same_or_others(st.fixed_dictionaries({"a": _LEAVES, "b": st.tuples(_LEAVES)})))
def test_elements_one_by_one(elements: list[Any]) -> None:
    elements = [normalize(element) for element in elements]
    try:
        stacked = _columns.stack(elements)
    except ValueError as error:  # Text and numbers
        with pytest.raises(ValueError, match=re.escape(str(error))):
            _build(elements)
        return
    built = _build(elements)
    assert jax.tree.structure(built) == jax.tree.structure(stacked)
    for ours, expected in zip(_leaves(built), _leaves(stacked), strict=True):
        assert type(ours) is type(expected)
        np.testing.assert_array_equal(ours, expected, strict=True)


@pytest.mark.parametrize("other", [(1, 2, 3), {"a": 1}, 1, (1, (2,))])
def test_another_structure(other: Any) -> None:
    builder = ColumnsBuilder(2)
    builder.add(normalize((1, 2)))
    with pytest.raises(ValueError, match=r"."):
        builder.add(normalize(other))


def test_rows_that_differ_keep_no_memory_of_others() -> None:
    builder = ColumnsBuilder(100)
    for size in range(1, 101):
        builder.add(np.zeros(1000 * size, np.uint8))
    column = builder.columns()
    assert isinstance(column, Ragged)
    assert [value.base for value in column.values] == [None] * 100
