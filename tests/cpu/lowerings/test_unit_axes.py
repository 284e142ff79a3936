"""Arrays of many axes of which some have one element: the same numbers without these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from tests.cpu.lowerings.both import assert_same, differs, lowered, random

OPERATIONS: dict[str, Callable[[jax.Array, jax.Array], Any]] = {
    "arithmetic": lambda x, y: (x + 2 * y) / (1 + y * y) - x**3,
    "functions": lambda x, y: jnp.exp(-jnp.abs(x)) * jnp.tanh(y) + jnp.sqrt(1 + y * y),
    "comparisons": lambda x, y: jnp.where((x > y) | (x < -1), x, jnp.maximum(y, 0.5)),
    "types": lambda x, y: (x * 4).astype(jnp.int32) + (y > 0).astype(jnp.int32),
}


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Shapes of five and six axes, of which one or more have one element."""
    sizes = [1, *draw(st.lists(st.sampled_from([1, 2, 3]), min_size=4, max_size=5))]
    return tuple(draw(st.permutations(sizes)))


@given(st.sampled_from(sorted(OPERATIONS)), shapes())
def test_elements(name: str, shape: tuple[int, ...]) -> None:
    assert_same(OPERATIONS[name], random(shape, "float32", 0), random(shape, "float32", 1))


@pytest.mark.slow
@given(shapes(), st.data())
def test_axes(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    order = data.draw(st.permutations(range(len(shape))))
    kept = [axis for axis in range(len(shape)) if axis not in axes]

    def compute(x: jax.Array) -> Any:
        total, most = jnp.sum(x, axes), jnp.max(x, axes)
        repeated = lax.broadcast_in_dim(total, shape, kept)
        return total, most, jnp.min(x, axes), repeated, lax.transpose(x, order)

    assert_same(compute, random(shape, "float32", 2))


@pytest.mark.parametrize(
    ("shape", "is_ours"),
    [((1, 2, 3, 4, 5), True), ((2, 3, 4, 1, 5), True), ((2, 3, 4, 5), False), ((1, 3, 4, 5), False), ((2,) * 5, False)],
)
def test_which_are_ours(shape: tuple[int, ...], is_ours: bool) -> None:
    assert differs(lambda x: jnp.exp(x) * 2, random(shape, "float32", 0)) is is_ours


def test_a_softmax_and_its_gradient_have_four_axes() -> None:
    x = random((1, 2, 3, 8, 8), "float32", 0)

    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(jax.nn.softmax(x, -1) ** 2)

    assert_same(jax.value_and_grad(loss), x)
    text = lowered(jax.grad(loss), x, ours=True).as_text()
    five = "tensor<1x2x3x8x8xf32>"
    written = [line for line in text.splitlines() if five in line and "= stablehlo." in line]
    assert written and all("reshape" in line for line in written), written


def test_empty_arrays() -> None:
    x = np.zeros((1, 0, 2, 3, 4), np.float32)
    assert_same(lambda x: (jnp.exp(x), jnp.sum(x, (1, 2)), jnp.broadcast_to(x, (2, 1, 0, 2, 3, 4))), x)
