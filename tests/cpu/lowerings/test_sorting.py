"""Sorted arrays: the same as XLA's own, to the bit, with ties in their order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests.cpu.lowerings.both import assert_same, both, differs, random

_SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40)


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(2, 70),
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.integers(0, 4),
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.sampled_from(_SPECIAL)), max_size=8),
)
def test_floats(
    leading: list[int],
    count: int,
    trailing: list[int],
    dtype: str,
    steps: int,
    operands: int,
    is_single: bool,
    special: list[tuple[int, float]],
) -> None:
    keys = random((*leading, count, *trailing), dtype, count, steps)
    for at, value in special:
        keys.flat[at % keys.size] = value
    places = np.arange(keys.size, dtype=np.int32).reshape(keys.shape)
    arrays = (keys,) if is_single else (keys, *(places * n for n in range(1, operands + 1)))
    own, ours = both(lambda *x: lax.sort(x, dimension=len(leading), num_keys=1), *arrays)
    # Bits: the sign of a zero, and which NaN it is, are the element's own.
    for expected, found in zip(own, ours, strict=True):
        assert np.asarray(expected).tobytes() == np.asarray(found).tobytes()


@given(
    st.sampled_from(["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"]),
    st.lists(st.integers(-(1 << 31), (1 << 32) - 1), min_size=2, max_size=40),
)
def test_integers(dtype: str, numbers: list[int]) -> None:
    keys = np.asarray(numbers, np.int64).astype(dtype)
    assert_same(lambda x: lax.sort((x, jnp.arange(x.size)), num_keys=1), keys, exact=True)


def test_more_axes_than_four_of_which_some_have_one_element() -> None:
    x = random((1, 1, 5, 1, 3), "float32", 0, 3)
    assert_same(lambda x: lax.sort((x, x + 1), dimension=2, num_keys=1), x, exact=True)


def test_in_the_functions_of_a_linear_solve() -> None:
    def solve(b: jax.Array) -> jax.Array:
        return lax.custom_linear_solve(lambda x: 2 * jnp.sort(x), b, lambda _, b: jnp.sort(b) / 2)

    assert_same(solve, random((16,), "float32", 0), exact=True)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gradients(axis: int) -> None:
    x, weights = random((4, 9, 5), "float32", 0, 3), random((4, 9, 5), "float32", 1)
    assert_same(jax.grad(lambda x: (jnp.sort(x, axis) * weights).sum()), x, exact=True)
    assert_same(lambda x: jnp.argsort(x, axis, descending=True), x, exact=True)


def test_permutations_are_those_of_a_program_without_lowerings() -> None:
    assert_same(
        lambda key: jax.random.permutation(jax.random.wrap_key_data(key), 1000), np.zeros(2, "uint32"), exact=True
    )


@pytest.mark.parametrize(
    ("sort", "dtype", "is_ours"),
    [
        (jnp.sort, "float32", True),
        (jnp.argsort, "int32", True),
        (jnp.sort, "int32", False),
        (lambda x: lax.sort((x, x, x), num_keys=2), "float32", False),
        (lambda x: lax.sort((x[..., :1], x[..., 1:2]), num_keys=1), "float32", False),
        (lambda x: jnp.sort(x[:0], 1), "float32", False),
    ],
)
def test_which_are_ours(sort: Any, dtype: str, is_ours: bool) -> None:
    values = random((4, 16), dtype, 0)
    assert differs(sort, values) is is_ours
    assert_same(sort, values, exact=True)
