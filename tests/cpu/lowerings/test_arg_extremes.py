"""Places of extremes: the same as XLA's own, whatever the values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.lowerings.both import assert_same, differs, random
from tests.support.exhaustive import slow_but


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 3), max_size=2),
    st.one_of(st.integers(20, 140), st.integers(128, 300)),
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([jnp.argmax, jnp.argmin]),
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0])), max_size=6),
)
def test_any_values(
    leading: list[int],
    count: int,
    trailing: list[int],
    dtype: str,
    place: Any,
    steps: int,
    special: list[tuple[int, float]],
) -> None:
    values = random((*leading, count, *trailing), dtype, count, steps)
    for at, value in special:
        values.flat[at % values.size] = value
    with jax.enable_x64(True):
        assert_same(lambda x: place(x, len(leading)), values, exact=True)


_SHAPES = [((2, 130), 1), ((2, 60), 1), ((60, 2), 0), ((130, 2), 0)]


@pytest.mark.parametrize("value", slow_but([np.nan, np.inf, -np.inf, 0.0], -np.inf))
@pytest.mark.parametrize(("shape", "axis"), _SHAPES)
def test_values_that_are_all_alike(value: float, shape: tuple[int, ...], axis: int) -> None:
    values = np.full(shape, value, np.float32)
    for place in (jnp.argmax, jnp.argmin):
        assert_same(lambda x, place=place: place(x, axis), values, exact=True)


@pytest.mark.parametrize("at", slow_but([0, 31, 32, 95, 97, 98, 127, 128, 129], 97, 129))
def test_every_block_is_looked_at(at: int) -> None:
    values = np.zeros((1, 130), np.float32)
    values[0, at] = 1
    for axis, x in enumerate((values.T, values)):
        assert_same(lambda x, axis=axis: jnp.argmax(x, axis), x, exact=True)
        assert_same(lambda x, axis=axis: jnp.argmin(x, axis), -x, exact=True)


@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "is_ours"),
    [
        ((4, 128), -1, "float32", True),
        ((4, 127), -1, "float32", True),
        ((4, 24), -1, "float32", False),
        ((25, 4), 0, "float32", True),
        ((24, 4), 0, "float32", False),
        ((4, 128), None, "float32", True),
        ((4, 128), -1, "bfloat16", False),
        ((4, 128), -1, "int32", False),
    ],
)
def test_which_are_ours(shape: tuple[int, ...], axis: int | None, dtype: str, is_ours: bool) -> None:
    values = random(shape, dtype, 0)
    assert differs(lambda x: jnp.argmax(x, axis), values) is is_ours
    assert_same(lambda x: jnp.argmax(x, axis), values, exact=True)
