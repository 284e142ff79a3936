"""Limits for values and gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lockstep.errors import ArgumentError
from lockstep.estimator import train as t

# Tenths: squares of much smaller numbers are zero in 32 bits.
_floats = st.integers(-1000, 1000).map(lambda i: np.float32(i / 10))
# Of one shape each, so that XLA compiles once.
_arrays = hnp.arrays(np.float32, (2, 3), elements=_floats)
_lists = st.tuples(_arrays, st.one_of(st.none(), _arrays), st.one_of(st.none(), _arrays)).map(list)
_few = settings(max_examples=25)


@_few
@given(_arrays, _floats, st.integers(0, 500).map(lambda i: i / 10))
def test_values_stay_in_a_range(array: Any, low: float, width: float) -> None:
    high = np.float32(low + np.float32(width))
    np.testing.assert_array_equal(t.clip_by_value(array, low, high), np.clip(array, np.float32(low), high))


@_few
@given(_arrays, st.floats(0.5, 50, width=32))
def test_an_array_keeps_its_direction(array: Any, limit: float) -> None:
    norm = np.linalg.norm(array.astype(np.float64))
    expected = array * min(1, limit / norm) if norm else array
    np.testing.assert_allclose(t.clip_by_norm(array, limit), expected, rtol=1e-4, atol=1e-4)


@_few
@given(_lists, st.floats(0.5, 50, width=32))
def test_arrays_are_scaled_together(arrays: list[Any], limit: float) -> None:
    norm = np.sqrt(sum(np.sum(a.astype(np.float64) ** 2) for a in arrays if a is not None))
    clipped, found = t.clip_by_global_norm(arrays, limit)
    np.testing.assert_allclose(found, norm, rtol=1e-5)
    np.testing.assert_allclose(t.global_norm(tuple(arrays)), norm, rtol=1e-5)
    scale = min(1, limit / norm) if norm else 1
    for given_array, array in zip(arrays, clipped, strict=True):
        if given_array is None:
            assert array is None
        else:
            np.testing.assert_allclose(array, given_array * scale, rtol=1e-4, atol=1e-4)


def test_norms_may_be_taken_along_axes() -> None:
    rows = t.clip_by_norm(np.array([[3.0, 4.0], [0.3, 0.4]], np.float32), 1.0, axes=[1])
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)


def test_a_norm_may_be_known() -> None:
    clipped, norm = t.clip_by_global_norm([jnp.ones(2)], 1.0, use_norm=4.0)
    np.testing.assert_allclose(clipped[0], [0.25, 0.25])
    assert norm == 4


def test_a_norm_that_is_not_finite_is_noticed() -> None:
    clipped, norm = t.clip_by_global_norm([jnp.array([1.0, jnp.inf]), None], 1.0)
    assert np.isinf(norm)
    assert np.isnan(clipped[0]).all()


@pytest.mark.slow
def test_zero_has_a_gradient() -> None:
    gradient = jax.grad(lambda x: jnp.sum(t.clip_by_norm(x, 1.0)))(jnp.zeros(3))
    np.testing.assert_array_equal(gradient, np.ones(3))


@pytest.mark.slow
def test_types_stay() -> None:
    assert t.clip_by_value(jnp.ones(2, jnp.bfloat16), 0, 0.5).dtype == jnp.bfloat16
    assert t.clip_by_norm(jnp.ones(2, jnp.float16), 0.5).dtype == jnp.float16
    assert t.clip_by_global_norm([jnp.ones(2, jnp.float16)], 0.5)[0][0].dtype == jnp.float16


@pytest.mark.parametrize("arrays", [np.ones(3), "text", [], [None]])
def test_a_list_of_arrays_is_wanted(arrays: Any) -> None:
    with pytest.raises(ArgumentError, match="Received"):
        t.clip_by_global_norm(arrays, 1.0)


def test_limits_must_fit() -> None:
    with pytest.raises(ArgumentError, match="Limits must broadcast to the array"):
        t.clip_by_value(np.ones(2), np.zeros((3, 1)), 1)
