"""What travels between a test and its tasks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lockstep.errors import ArgumentError
from lockstep.testing import _values

_SHAPES = arrays.array_shapes(min_dims=0, min_side=0)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(max_size=20),
    st.text("abc/", min_size=1).map(Path),
    arrays.arrays(st.one_of(arrays.scalar_dtypes(), arrays.unicode_string_dtypes()), _SHAPES),
    arrays.arrays(np.int16, _SHAPES).map(lambda bits: bits.view(ml_dtypes.bfloat16)),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3),
    ),
    max_leaves=6,
)


def _passed(value: object) -> Any:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "value"
        _values.save(path, value, "it")
        return _values.load(path)


def _assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            _assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    else:
        assert found == expected


@given(_VALUES)
def test_values_arrive_as_they_were(value: Any) -> None:
    _assert_same(_passed(value), value)


def test_arrays_of_jax_arrive_as_those_of_numpy() -> None:
    found = _passed({"a": jnp.ones(3, "bfloat16"), "b": np.float32(2), "c": float("nan")})
    assert isinstance(found["a"], np.ndarray) and found["a"].dtype == ml_dtypes.bfloat16
    assert type(found["b"]) is np.float32 and found["b"] == 2
    assert np.isnan(found["c"])


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"a": [1, {2}]}, r"it\['a'\]\[1\] is set"),
        ({(1, 2): 3}, r"the key \(1, 2\) of it is tuple"),
        (np.array([object()]), "it is an array of Python objects"),
        (print, "it is builtin_function_or_method"),
    ],
)
def test_what_does_not_travel_is_named(value: Any, what: str) -> None:
    with pytest.raises(ArgumentError, match=f"Here {what}"):
        _passed(value)
