"""Gradients of variances: XLA's numbers, without sums that are zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._cpu.lowerings import variances
from tests.cpu.lowerings.both import assert_same, differs, lowered, random
from tests.cpu.lowerings.test_pooling import both_ways

_SHAPE, _AXES = (3, 5, 4, 6), (0, 1, 2)


def normalize(axes: tuple[int, ...]) -> Callable[[jax.Array], jax.Array]:
    """Returns a function with the moments and the normalization of Keras."""

    def compute(x: jax.Array) -> jax.Array:
        mean, variance = keras.ops.moments(x, axes, keepdims=True)
        inverse = jax.lax.rsqrt(jnp.asarray(variance) + 1e-3)
        return jax.nn.relu(x * inverse - jnp.asarray(mean) * inverse)

    return compute


def sums(f: Callable[..., Any], *args: Any, ours: bool) -> int:
    """Returns how many reductions XLA keeps of a program's."""
    return lowered(f, *args, ours=ours).compile().as_text().count(" reduce(")


@pytest.fixture
def _of_any_size() -> Iterator[None]:
    """Has arrays of any size taken for large ones."""
    with mock.patch.object(variances, "_LARGE", 0):
        yield


@pytest.mark.usefixtures("_of_any_size")
@settings(max_examples=12)
@pytest.mark.slow
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
    data=st.data(),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
    offset=st.sampled_from([0, 100]),
)
def test_any_axes(shape: tuple[int, ...], data: st.DataObject, dtype: str, offset: int) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    with jax.enable_x64(dtype == "float64"):
        x = random(shape, dtype, 0) + np.asarray(offset, random((), dtype, 0).dtype)
        assert_same(both_ways(lambda v: jnp.var(v, axes)), x, random(np.var(np.empty(shape), axes).shape, dtype, 1))


@pytest.mark.usefixtures("_of_any_size")
@pytest.mark.parametrize("axes", [_AXES, (3,), (1, 2)], ids=str)
def test_normalization(axes: tuple[int, ...]) -> None:
    arguments = random(_SHAPE, "float32", 0), random(_SHAPE, "float32", 1)
    compute = both_ways(normalize(axes))
    assert_same(compute, *arguments)
    # The sum of the deviations times a constant.
    assert sums(compute, *arguments, ours=True) == sums(compute, *arguments, ours=False) - 1


@pytest.mark.usefixtures("_of_any_size")
def test_numbers_that_are_none_stay_none() -> None:
    x = random(_SHAPE, "float32", 0)
    x[0, 0, 0, 0], x[1, 0, 0, 1] = np.nan, np.inf
    assert_same(both_ways(normalize(_AXES)), x, random(_SHAPE, "float32", 1))


_OTHERS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "unbiased": lambda x: jnp.var(x, _AXES, ddof=1),
    "masked": lambda x: jnp.var(x, _AXES, where=x > 0),
    "of the mean of other axes": lambda x: jnp.sum(jnp.square(x - jnp.mean(x, (0, 1), keepdims=True)), _AXES),
    "complex": lambda x: jnp.var(x + 1j * x, _AXES),
    "a second derivative": lambda x: jax.grad(lambda v: jnp.sum(jnp.tanh(jnp.var(v, _AXES))))(x).max(_AXES),
}


@pytest.mark.usefixtures("_of_any_size")
@pytest.mark.parametrize("name", _OTHERS)
def test_others(name: str) -> None:
    assert_same(both_ways(_OTHERS[name]), random(_SHAPE, "float32", 0), random(_SHAPE[-1:], "float32", 1))


def test_only_of_large_arrays() -> None:
    compute = both_ways(normalize(_AXES))
    for places, is_large in ((64, False), (512, True)):
        shape = jax.ShapeDtypeStruct((8, places, 16, 64), "float32")
        assert differs(compute, shape, shape) is is_large
