"""Resized pictures: those of jax, from the few pixels that each new one is made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.lowerings.both import assert_same, both, differs, lowered, random
from tests.support.exhaustive import slow_but


def resizing(shape: tuple[int, ...], method: str = "bilinear", antialias: bool = True) -> Any:
    """Returns a function that resizes pictures."""
    return lambda x: jax.image.resize(x, shape, method, antialias)


def gradient(f: Any) -> Any:
    """Returns the gradient of a weighted sum of a function's results; the weights are another argument."""
    return jax.grad(lambda x, weights: (f(x) * weights).sum().astype("float32"))


@pytest.mark.slow
@given(
    st.integers(1, 3),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from([1, 3, 4, 17]),
    st.sampled_from(["bilinear", "bicubic", "lanczos3"]),
    st.booleans(),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_any_sizes(
    batch: int,
    sizes: tuple[int, int],
    new_sizes: tuple[int, int],
    channels: int,
    method: str,
    antialias: bool,
    dtype: str,
) -> None:
    shape = (batch, *new_sizes, channels)
    pictures = random((batch, *sizes, channels), dtype, 0)
    resize = resizing(shape, method, antialias)
    # One program of both: to compile takes longer than all else.
    assert_same(lambda x, weights: (resize(x), gradient(resize)(x, weights)), pictures, random(shape, dtype, 1))


_CASES = [
    ((2, 16, 16, 8), (2, 32, 32, 8), "bilinear", True, False),
    ((2, 16, 16, 16), (2, 32, 32, 16), "bilinear", True, True),
    ((2, 16, 16, 16), (2, 16, 32, 16), "bilinear", True, True),
    ((2, 32, 32, 16), (2, 64, 64, 16), "bicubic", True, True),
    ((2, 16, 16), (2, 32, 16), "bilinear", True, True),
    ((2, 16, 3), (2, 32, 3), "bilinear", True, False),
    ((2, 40, 40, 16), (2, 30, 24, 16), "bilinear", True, True),
    ((2, 12, 12, 16), (2, 96, 96, 16), "bilinear", True, True),
    ((2, 8, 8, 16), (2, 160, 160, 16), "bilinear", True, False),
    ((8, 16, 16, 16), (8, 32, 32, 16), "lanczos3", False, False),
    ((2, 4, 4, 16), (2, 8, 8, 16), "bilinear", False, True),
    ((2, 16, 16, 1), (2, 32, 32, 1), "bilinear", False, False),
]


@pytest.mark.parametrize(
    ("shape", "new_shape", "method", "is_ours", "is_gradient_ours"), slow_but(_CASES, *_CASES[::2])
)
def test_which_are_ours(
    shape: tuple[int, ...], new_shape: tuple[int, ...], method: str, is_ours: bool, is_gradient_ours: bool
) -> None:
    pictures, weights = random(shape, "float32", 0), random(new_shape, "float32", 1)
    resize = resizing(new_shape, method)
    for f, arguments, expected in (
        (resize, [pictures], is_ours),
        (gradient(resize), [pictures, weights], is_gradient_ours),
    ):
        products = lowered(f, *arguments, ours=True).compile().as_text()
        assert ("dot" not in products) is expected
        assert_same(f, *arguments)


def test_what_is_made_of_the_resized_pictures_is_made_of_them() -> None:
    """Computes the pictures between two axes as well, if something else reads them."""
    pictures, weights = random((2, 16, 16, 16), "float32", 0), jnp.eye(16, 32)

    def both_axes(x: jax.Array) -> Any:
        rows = jnp.einsum("bhwc,hk->bkwc", x, weights)
        return rows, jnp.einsum("bkwc,wl->bklc", jnp.sin(rows), weights)

    assert differs(both_axes, pictures)
    assert_same(both_axes, pictures)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_pixel_that_is_not_finite_stays_where_it_is(value: float) -> None:
    pictures = random((1, 16, 16, 4), "float32", 0)
    pictures[0, 3, 5, 1] = value
    own, ours = both(resizing((1, 32, 32, 4)), pictures)
    is_made_of_it = np.zeros((1, 32, 32, 4), bool)
    is_made_of_it[0, 5:9, 9:13, 1] = True
    np.testing.assert_array_equal(~np.isfinite(ours), is_made_of_it)
    np.testing.assert_allclose(
        np.where(np.isfinite(own), own, 0), np.where(np.isfinite(own), ours, 0), rtol=1e-5, atol=1e-6
    )


def test_matrices_that_come_from_the_input_are_multiplied() -> None:
    pictures, matrix = random((2, 16, 16, 16), "float32", 0), np.eye(16, 32, dtype="float32")
    multiply = lambda x, m: jnp.einsum("bhwc,hk,wl->bklc", x, m, m)  # noqa: E731
    assert "take" not in lowered(multiply, pictures, matrix, ours=True).as_text()
    assert_same(multiply, pictures, matrix)
