"""Sines, cosines, tangents and their inverses: XLA's own, within units in the last place, whatever the values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.lowerings.both import both, differs, random

# In units in the last place, of the exact value.
MOST_UNITS = {"sin": 2, "cos": 2, "tan": 4, "arcsin": 3, "arccos": 3, "arctan": 3, "arctan2": 3}
ONE_OPERAND = [name for name in MOST_UNITS if name != "arctan2"]
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e8, 1.1e8, np.pi, -np.pi / 2, 1e-30)
# So many elements are ours.
PERIODIC, COUNT = 65_536, 4096


def _assert_within_units(name: str, *operands: np.ndarray) -> None:
    assert differs(getattr(jnp, name), *operands)
    own, ours = (np.asarray(a) for a in both(getattr(jnp, name), *operands))
    assert ours.dtype == own.dtype == np.float32
    with np.errstate(invalid="ignore"):
        exact = getattr(np, name)(*(a.astype(np.float64) for a in operands))
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(exact))
        unit = np.spacing(np.maximum(np.abs(exact), 1e-30).astype(np.float32))
        assert np.nanmax(np.abs(ours - exact) / unit, initial=0) <= MOST_UNITS[name]
    np.testing.assert_array_equal(np.signbit(ours[exact == 0]), np.signbit(own[exact == 0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OPERAND)
@pytest.mark.parametrize("scale", [1e-20, 1e-3, 0.5, 1.0, 10.0, 1e4, 3e7, 1e9, 1e30])
def test_a_range_of_values(name: str, scale: float) -> None:
    values = np.linspace(-scale, scale, 1 << 16).astype(np.float32)
    _assert_within_units(name, values)


@given(st.sampled_from(ONE_OPERAND), st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_any_value(name: str, some: list[float]) -> None:
    _assert_within_units(name, np.resize(np.array(some, np.float32), PERIODIC))


@pytest.mark.parametrize("name", ONE_OPERAND)
def test_special_values(name: str) -> None:
    _assert_within_units(name, np.resize(np.array(SPECIAL, np.float32), PERIODIC))


def test_angles_of_special_points() -> None:
    y, x = np.array(list(itertools.product(SPECIAL, SPECIAL)) * 16, np.float32).T
    _assert_within_units("arctan2", y, x)


def test_angles_of_points_next_to_zero() -> None:
    """Of numbers below 2**-126, which XLA's threads take for zero."""
    sizes = [0, 2**-149, 1e-40, 9.999999350456404e-39, 2**-126, 3e-38, 1e-30, 1e-8, 0.999, 1, 1e4]
    values = [sign * size for sign in (1, -1) for size in sizes]
    y, x = np.array(list(itertools.product(values, values)) * 9, np.float32).T
    assert len(y) >= COUNT
    _assert_within_units("arctan2", y, x)


@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=20))
def test_the_angle_of_any_point(some: list[tuple[float, float]]) -> None:
    y, x = np.resize(np.array(some, np.float32), (COUNT, 2)).T
    _assert_within_units("arctan2", y, x)


def test_one_large_element_changes_no_other() -> None:
    values = random((PERIODIC,), "float32", 0)
    small, large = (both(jnp.sin, v)[1] for v in (values, np.append(values, np.float32(1e20))))
    np.testing.assert_allclose(small, large[:-1], rtol=3e-7)


@pytest.mark.parametrize(
    ("function", "dtype", "count", "is_ours"),
    [
        (jnp.sin, "float32", PERIODIC, True),
        (jnp.sin, "float32", PERIODIC - 1, False),
        (jnp.arctan, "float32", COUNT, True),
        (jnp.arctan, "float32", COUNT - 1, False),
        (jnp.cos, "float64", PERIODIC, False),
        (jnp.arctan, "bfloat16", COUNT, False),
        (lambda x: jax.lax.tan(x, accuracy=jax.lax.AccuracyMode.HIGHEST), "float32", PERIODIC, False),
    ],
)
def test_which_are_ours(function: Callable[..., Any], dtype: str, count: int, is_ours: bool) -> None:
    with jax.enable_x64(dtype == "float64"):
        assert differs(function, random((count,), dtype, 0)) is is_ours


def test_gradients_and_transformations() -> None:
    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(3 * x) * jnp.arctan(x) + jax.vmap(jnp.cos)(x))

    own, ours = both(jax.grad(loss), random((128, 512), "float32", 1))
    np.testing.assert_allclose(own, ours, rtol=1e-5, atol=1e-6)


def test_more_axes_than_four_of_which_some_have_one_element() -> None:
    """Half-way, they are computed in float64."""
    x = random((1, 64, 1, 32, 64), "float32", 0)
    for function in (jnp.sin, jnp.cos, jnp.tan, jnp.arcsin, jnp.arctan):
        own, ours = both(function, x)
        np.testing.assert_allclose(ours, own, rtol=1e-6, atol=1e-7)
