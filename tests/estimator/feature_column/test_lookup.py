"""Embeddings against numpy, row by row."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lockstep.estimator.feature_column._columns import Ids, missing
from lockstep.estimator.feature_column._lookup import combine_rows

_ROWS = 6
_TABLE = np.random.default_rng(0).normal(size=(_ROWS, 3)).astype(np.float32)
_NOTHING = missing(np.int32)


def _expected(ids: np.ndarray, weights: np.ndarray | None, combiner: str, max_norm: float | None) -> np.ndarray:
    result = np.zeros((len(ids), 3))
    for example, row in enumerate(ids):
        total, norm = np.zeros(3), 0.0
        for place, number in enumerate(row):
            weight = 1.0 if weights is None else float(weights[example, place])
            if number < 0 or (combiner != "sum" and weight <= 0):
                continue
            values = _TABLE[number].astype(np.float64)
            length = np.linalg.norm(values)
            total += weight * (values if max_norm is None or length <= max_norm else values * max_norm / length)
            norm += weight if combiner == "mean" else weight**2
        divisor = 1.0 if combiner == "sum" or not norm else norm if combiner == "mean" else norm**0.5
        result[example] = total / divisor
    return result


@functools.partial(jax.jit, static_argnums=(2, 3))
def _compiled(ids: Any, weights: Any, combiner: str, max_norm: float | None) -> jax.Array:
    return combine_rows(_TABLE, Ids(ids, weights), combiner, max_norm)


@pytest.mark.slow
@given(
    arrays.arrays(np.int32, (3, 3), elements=st.integers(-1, _ROWS - 1)),
    st.sampled_from(["sum", "mean", "sqrtn"]),
    st.sampled_from([None, 0.5, 10.0]),
    st.data(),
)
def test_rows_are_combined_as_tensorflow_does(
    ids: np.ndarray, combiner: str, max_norm: float | None, data: st.DataObject
) -> None:
    elements = st.floats(-2, 2, width=32).filter(lambda w: w == 0 or abs(w) > 0.01)
    weights = data.draw(st.none() | arrays.arrays(np.float32, ids.shape, elements=elements))
    found = _compiled(ids, weights, combiner, max_norm)
    np.testing.assert_allclose(found, _expected(ids, weights, combiner, max_norm), atol=2e-5)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_an_example_without_categories_is_zero_and_has_no_gradient(combiner: str) -> None:
    ids = Ids(jnp.array([[_NOTHING, -1]], jnp.int32))
    compute = jax.jit(jax.value_and_grad(lambda table: jnp.sum(combine_rows(table, ids, combiner, 1.0))))
    value, gradient = compute(jnp.zeros((2, 3)))
    assert float(value) == 0
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


def test_a_category_beyond_the_table_is_seen() -> None:
    assert np.isnan(combine_rows(_TABLE, Ids(jnp.array([[0, _ROWS]], jnp.int32)), "mean")).all()


def test_gradients_reach_the_rows_that_were_used() -> None:
    ids = Ids(jnp.array([[1, 1], [4, -1]], jnp.int32), jnp.array([[0.5, 1.0], [3.0, 1.0]]))
    gradient = jax.grad(lambda table: jnp.sum(combine_rows(table, ids, "sum")))(jnp.asarray(_TABLE))
    assert np.asarray(gradient)[:, 0].tolist() == [0, 1.5, 0, 0, 3, 0]
