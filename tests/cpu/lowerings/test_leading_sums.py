"""Sums over leading axes: the same numbers, where results are many; XLA's own elsewhere."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.lowerings.both import assert_same, both, differs, random

_MANY = 16_385


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    """Returns a shape with many results of a sum over the first axes, and their number."""
    leading = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    trailing = draw(st.lists(st.integers(1, 7), max_size=2))
    least = -(-_MANY // math.prod(trailing))
    at = draw(st.integers(0, len(trailing)))
    return (*leading, *trailing[:at], draw(st.integers(least, least + 300)), *trailing[at:]), len(leading)


@given(shapes(), st.sampled_from(["float32", "float64", "bfloat16"]))
def test_any_shape(case: tuple[tuple[int, ...], int], dtype: str) -> None:
    shape, count = case
    with jax.enable_x64(True):
        assert_same(lambda x: jnp.sum(x, tuple(range(count))), random(shape, dtype, 0))


@pytest.mark.parametrize(
    ("shape", "axes", "is_ours"),
    [
        ((4, 20, 1000), (0,), True),
        ((2, 2, _MANY), (0, 1), True),
        ((4, 128, 128), (0,), False),
        ((1, 20, 1000), (0,), False),
        ((4, 4, 20_000), (1,), False),
        ((20_000, 4), (1,), False),
    ],
)
def test_which_are_products(shape: tuple[int, ...], axes: tuple[int, ...], is_ours: bool) -> None:
    values = random(shape, "float32", 0)
    assert differs(lambda x: jnp.sum(x, axes), values) is is_ours
    assert not differs(lambda x: jnp.sum(x, axes), values.astype(np.int32))
    assert_same(lambda x: jnp.sum(x, axes), values)


def test_values_that_are_no_numbers_stay_where_they_are() -> None:
    values = random((3, _MANY), "float32", 0)
    values[1, 5], values[2, 7], values[0, 9] = np.nan, np.inf, -np.inf
    assert_same(lambda x: jnp.sum(x, 0), values)


def test_the_precision_is_full_whatever_the_default() -> None:
    values = random((64, _MANY), "float32", 0)
    with jax.default_matmul_precision("bfloat16"):
        _, ours = both(lambda x: jnp.sum(x, 0), values)
    np.testing.assert_allclose(ours, values.sum(0, dtype=np.float64), atol=1e-5)


def test_the_gradient_of_what_a_batch_has_in_common() -> None:
    def gradients(table: Any, scale: Any, x: Any) -> Any:
        return jax.grad(lambda t, s: jnp.sum(jnp.sin(x * s + t)), (0, 1))(table, scale)

    table, scale = random((130, 128), "float32", 0), random((1, 130, 128), "float32", 1)
    operands = table, scale, random((4, 130, 128), "float32", 2)
    assert differs(gradients, *operands)
    assert_same(gradients, *operands)


def test_a_sum_is_divided_between_devices() -> None:
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    values = random((8, 20, 1000), "float32", 0)
    for spec in (("d",), (None, "d"), (None, None, "d")):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        placed = jax.device_put(values, sharding)
        _, ours = both(lambda x: jnp.sum(x, 0), placed)
        np.testing.assert_allclose(ours, values.sum(0), atol=1e-5)
