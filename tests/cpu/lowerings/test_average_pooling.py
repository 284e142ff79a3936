"""Counts of places in windows and gradients of average pooling: XLA's numbers, without sums over windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tests.cpu.lowerings.both import assert_same, lowered, random
from tests.cpu.lowerings.test_pooling import cases, pool


def sums_windows(f: Callable[..., Any], *args: Any) -> bool:
    """Returns whether sums over windows are left to XLA."""
    return "stablehlo.reduce_window" in lowered(f, *args, ours=True).as_text()


def gradient(*args: Any) -> Callable[..., Any]:
    """Returns the gradient of a sum over windows by its operand, given that of its result."""

    def compute(x: jax.Array, scale: jax.Array) -> jax.Array:
        out, back = jax.vjp(lambda v: pool(v, "sum", *args), x)
        return back(jnp.tanh(jnp.full(out.shape, scale) * lax.broadcasted_iota(x.dtype, out.shape, 1)))[0]

    return compute


@pytest.mark.slow
@settings(max_examples=12)
@given(case=cases(), dilation=st.integers(1, 2), dtype=st.sampled_from(["float32", "float64", "bfloat16"]))
def test_sums_of_one_number(case: Any, dilation: int, dtype: str) -> None:
    shape, window, strides, padding = case

    def compute(number: jax.Array) -> jax.Array:
        x, spread = jnp.full(shape, number), (1, *(dilation,) * (len(shape) - 2), 1)
        return lax.reduce_window(x, number.dtype.type(0), lax.add, window, strides, padding, None, spread)

    with jax.enable_x64(dtype == "float64"):
        assert_same(compute, random((), dtype, 0))
        assert sums_windows(compute, random((), dtype, 0)) is (dtype == "bfloat16")


@pytest.mark.slow
@settings(max_examples=12)
@given(case=cases(), channels=st.sampled_from([1, 3, 32]), scale=st.floats(0.1, 2))
def test_gradients(case: Any, channels: int, scale: float) -> None:
    shape, window, strides, padding = case
    x = random((*shape[:-1], channels), "float32", 0)
    assert_same(gradient(window, strides, padding), x, jnp.float32(scale))


_OVERLAPPING: dict[str, tuple[Any, ...]] = {
    "stride 1": ((2, 9, 9, 16), (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
    "stride 2": ((2, 9, 9, 16), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "channels second": ((2, 16, 9, 9), (1, 1, 3, 3), (1, 1, 2, 2), "VALID"),
    "a line": ((2, 30, 16), (1, 5, 1), (1, 2, 1), "SAME"),
    "a volume": ((2, 7, 7, 7, 8), (1, 3, 3, 3, 1), (1, 2, 2, 2, 1), "VALID"),
    "one axis": ((2, 9, 9, 16), (1, 3, 1, 1), (1, 2, 1, 1), "SAME"),
}
_LEFT_ALONE: dict[str, tuple[Any, ...]] = {
    "no overlap": ((2, 8, 8, 16), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    "small windows": ((2, 8, 8, 16), (1, 2, 2, 1), (1, 1, 1, 1), "VALID"),
    "channels too": ((2, 9, 9, 16), (1, 3, 3, 3), (1, 2, 2, 2), "VALID"),
    "examples too": ((4, 9, 9, 16), (3, 3, 3, 1), (1, 2, 2, 1), "VALID"),
}


@pytest.mark.parametrize("name", _OVERLAPPING)
def test_overlapping_windows_are_not_added_up(name: str) -> None:
    shape, *args = _OVERLAPPING[name]
    x, scale = random(shape, "float32", 0), jnp.float32(0.5)
    assert not sums_windows(gradient(*args), x, scale)
    assert_same(gradient(*args), x, scale)


@pytest.mark.parametrize("name", _LEFT_ALONE)
def test_others_are_left_to_xla(name: str) -> None:
    shape, *args = _LEFT_ALONE[name]
    x, scale = random(shape, "float32", 0), jnp.float32(0.5)
    assert sums_windows(gradient(*args), x, scale)
    assert_same(gradient(*args), x, scale)


def test_average_pooling_of_keras() -> None:
    layer = keras.layers.AveragePooling2D(3, 2, padding="same")

    def step(x: jax.Array) -> Any:
        return jax.value_and_grad(lambda v: jnp.sum(jnp.sin(layer(v))))(x)

    x = random((2, 9, 9, 16), "float32", 0)
    assert not sums_windows(step, x)
    assert_same(step, x)
