"""Pooling and its gradient: XLA's numbers, also among ties, NaNs and infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax

from tests.cpu.lowerings.both import assert_same, differs, lowered, random

FEW = settings(max_examples=6)
DTYPES = ("float32", "bfloat16", "float16")


def pool(x: Any, kind: str, window: Any, strides: Any, padding: Any) -> Any:
    start, combine = (-np.inf, lax.max) if kind == "max" else (0.0, lax.add)
    return lax.reduce_window(x, x.dtype.type(start), combine, window, strides, padding)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Any]:
    """A shape with one to three pooled axes among others, and what to pool it with."""
    rank = draw(st.integers(1, 3))
    window = [draw(st.integers(1, 4)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    space = [size + draw(st.integers(0, 5)) for size in window]
    # From so many channels on, windows side by side are treated in one pass.
    outer, inner = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 3, 70]))
    padding = draw(st.sampled_from(["SAME", "VALID", "uneven"]))
    if padding == "uneven":
        sides = [(draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))) for size in window]
        padding = ((0, 0), *sides, (0, 0))
    return (outer, *space, inner), (1, *window, 1), (1, *strides, 1), padding


def input_and_gradient(case: Any, dtype: str, seed: int, steps: int) -> tuple[Any, Any]:
    """Returns an input of pooling, and a gradient of its output."""
    shape, *arguments = case
    x = random(shape, dtype, seed, steps)
    out = jax.eval_shape(lambda v: pool(v, "max", *arguments), x)
    # The sum of small integers is exact in any order.
    return x, np.random.default_rng(seed).integers(-8, 8, out.shape).astype(x.dtype)


@pytest.mark.slow
@FEW
@given(case=cases(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99), steps=st.sampled_from([0, 2]))
@example(case=((2, 6, 6, 3), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), dtype="float32", seed=0, steps=2)
@example(case=((2, 7, 7, 3), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), dtype="float32", seed=0, steps=2)
@example(case=((2, 7, 6, 24), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), dtype="float32", seed=0, steps=2)
@example(case=((2, 3, 7, 7), (1, 1, 2, 2), (1, 1, 2, 2), "VALID"), dtype="float32", seed=0, steps=2)
def test_the_gradient_of_max_pooling_goes_where_xla_sends_it(case: Any, dtype: str, seed: int, steps: int) -> None:
    _, *arguments = case
    gradient = lambda v, g: jax.vjp(lambda w: pool(w, "max", *arguments), v)[1](g)  # noqa: E731
    assert_same(gradient, *input_and_gradient(case, dtype, seed, steps), exact=True)


def relu_and_pool(x: Any, window: Any, strides: Any, padding: Any) -> Any:
    return pool(jax.nn.relu(x), "max", window, strides, padding)


def both_ways(layer: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Returns a function of an input and of an output's gradient that gives the output and the input's gradient."""

    def compute(x: Any, gradient: Any) -> Any:
        y, transpose = jax.vjp(lambda v: layer(v, *arguments), x)
        return y, transpose(gradient)

    return compute


@pytest.mark.slow
@FEW
@given(case=cases(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99), steps=st.sampled_from([0, 2]))
@example(case=((2, 6, 6, 3), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), dtype="float32", seed=0, steps=2)
@example(case=((2, 7, 7, 3), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), dtype="float32", seed=0, steps=2)
@example(case=((2, 7, 7, 70), (1, 2, 2, 1), (1, 2, 2, 1), "SAME"), dtype="float32", seed=0, steps=2)
def test_the_gradient_of_a_relu_in_front_of_max_pooling(case: Any, dtype: str, seed: int, steps: int) -> None:
    _, *arguments = case
    assert_same(both_ways(relu_and_pool, *arguments), *input_and_gradient(case, dtype, seed, steps), exact=True)


_WINDOW = ((1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def test_relus_in_front_of_max_pooling_look_at_outputs() -> None:
    x, gradient = random((2, 6, 6, 3), "float32", 0), random((2, 3, 3, 3), "float32", 1)
    text = lowered(both_ways(relu_and_pool, *_WINDOW), x, gradient, ours=True).as_text()
    assert "compare LE" in text and "tensor<2x6x6x3xi1>" not in text


def _relu_elsewhere(x: Any) -> Any:
    return pool(x, "max", *_WINDOW), jax.nn.relu(x)


def _relu_read_twice(x: Any) -> Any:
    y = jax.nn.relu(x)
    return pool(y, "max", *_WINDOW), y


def _relu_of_all_places(x: Any) -> Any:
    return pool(jax.nn.relu(x), "max", (1, 2, 2, 1), (1, 1, 1, 1), "SAME")


@pytest.mark.parametrize("layer", [_relu_elsewhere, _relu_read_twice, _relu_of_all_places])
def test_other_relus_stay_where_they_are(layer: Callable[[Any], Any]) -> None:
    x = random((2, 6, 6, 3), "float32", 0)
    gradient = jax.tree.map(lambda y: random(y.shape, "float32", 1), layer(x))
    assert "compare LE" not in lowered(both_ways(layer), x, gradient, ours=True).as_text()
    assert_same(both_ways(layer), x, gradient, exact=True)


@pytest.mark.slow
@FEW
@given(case=cases(), kind=st.sampled_from(["max", "sum"]), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
def test_pooling(case: Any, kind: str, dtype: str, seed: int) -> None:
    shape, window, strides, padding = case
    assert_same(lambda v: pool(v, kind, window, strides, padding), random(shape, dtype, seed))


@pytest.mark.slow
@FEW
@given(case=cases(), seed=st.integers(0, 99))
def test_the_gradient_of_average_pooling(case: Any, seed: int) -> None:
    shape, window, strides, padding = case
    x = random(shape, "float32", seed)
    assert_same(jax.grad(lambda v: (pool(v, "sum", window, strides, padding) ** 2).sum()), x)


STRANGE = [
    [np.nan, 1, 2, 3],
    [1, np.nan, 2, np.nan],
    [1, np.nan, np.nan, 5],
    [np.nan] * 4,
    [-np.inf] * 4,
    [-np.inf, np.inf, np.inf, -np.inf],
    [0.0, -0.0, -0.0, 0.0],
    [-0.0, 0.0, -0.0, 0.0],
]


@pytest.mark.parametrize("channels", [1, 70])
@pytest.mark.parametrize("window,stride,padding", [(4, 4, (0, 0)), (2, 2, (0, 0)), (3, 1, (1, 1)), (3, 2, (1, 2))])
def test_nan_infinity_and_zeros_of_both_signs(
    window: int, stride: int, padding: tuple[int, int], channels: int
) -> None:
    x = np.repeat(np.asarray(STRANGE, "float32")[..., None], channels, axis=-1)
    args = ((1, window, 1), (1, stride, 1), ((0, 0), padding, (0, 0)))

    def gradient(v: Any) -> Any:
        out, back = jax.vjp(lambda w: pool(w, "max", *args), v)
        return out, back(jax.numpy.arange(1, out.size + 1, dtype="float32").reshape(out.shape))

    assert_same(gradient, x, exact=True)


def test_minimum_pooling_is_left_alone() -> None:
    x = random((2, 4, 4, 3), "float32", 0)

    def smallest(v: Any) -> Any:
        return lax.reduce_window(v, np.float32(np.inf), lax.min, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    assert not differs(jax.grad(lambda v: smallest(v).sum()), x)


@pytest.mark.slow
def test_float64() -> None:
    with jax.enable_x64(True):
        x = random((2, 7, 7, 3), "float64", 0, steps=2)
        for kind in ("max", "sum"):
            args = (kind, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            assert differs(lambda v: pool(v, *args), x)  # noqa: B023
            assert_same(jax.value_and_grad(lambda v: (pool(v, *args) ** 2).sum()), x)  # noqa: B023
