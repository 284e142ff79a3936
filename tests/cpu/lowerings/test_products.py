"""Products of matrices: which are made in another form, and that the numbers stay XLA's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tests.cpu.lowerings.both import assert_same, differs, lowered, random


@st.composite
def products(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Dimension numbers and the shapes of two operands."""
    sizes = st.integers(1, 4)
    kinds = draw(st.permutations(["batch"] * draw(st.integers(0, 2)) + ["sum"] * draw(st.integers(0, 2))))
    shared = [draw(sizes) for _ in kinds]
    orders, shapes, numbers = [], [], ([], [])
    for _ in range(2):
        order = draw(st.permutations([*range(len(kinds)), *[None] * draw(st.integers(0, 2))]))
        orders.append(order)
        shapes.append([draw(sizes) if axis is None else shared[axis] for axis in order])
    for axis, kind in enumerate(kinds):
        numbers[kind == "batch"].append([order.index(axis) for order in orders])
    split = [tuple(zip(*pairs, strict=True)) if pairs else ((), ()) for pairs in numbers]
    return tuple(split), *shapes


@pytest.mark.slow
@settings(max_examples=40)
@given(products())
def test_any_product(case: tuple[Any, Any, Any]) -> None:
    numbers, left, right = case
    with jax.enable_x64(True):
        operands = random(tuple(left), "float64", 0), random(tuple(right), "float64", 1)
        assert_same(lambda a, b: lax.dot_general(a, b, numbers), *operands)


def _of_kernel(x: Any, g: Any) -> Any:
    kernel = jnp.zeros((x.shape[-1], *g.shape[x.ndim - 1 :]), x.dtype)
    return jax.vjp(lambda k: jnp.tensordot(x, k, 1), kernel)[1](g)[0]


@pytest.mark.parametrize("x,g", [((4, 6, 8), (4, 6, 3)), ((4, 6, 8), (4, 6, 2, 3)), ((2, 3, 4, 8), (2, 3, 4, 3))])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_kernels_gradient_sums_over_one_axis(x: tuple[int, ...], g: tuple[int, ...], dtype: str) -> None:
    with jax.enable_x64(True):
        operands = random(x, dtype, 0), random(g, dtype, 1)
        assert differs(_of_kernel, *operands)
        assert_same(_of_kernel, *operands)


def test_that_takes_no_copy() -> None:
    operands = random((4, 6, 8), "float32", 0), random((4, 6, 3), "float32", 1)
    own, ours = (lowered(_of_kernel, *operands, ours=ours).compile().as_text() for ours in (False, True))
    assert " copy(" in own and " copy(" not in ours


@pytest.mark.parametrize(
    ("x", "g", "is_kept"),
    [
        ((1024, 64), (1024, 10), True),
        ((1024, 64), (1024, 32), False),
        ((1024, 64), (1024, 31), True),
        ((1024, 31), (1024, 31), False),
        ((1024, 10), (1024, 64), False),
        ((1023, 64), (1023, 10), False),
        ((1024, 2048), (1024, 65), False),
    ],
)
def test_a_wide_kernels_gradient_is_made_as_it_is_written(x: Any, g: Any, is_kept: bool) -> None:
    operands = random(x, "float32", 0), random(g, "float32", 1)
    assert differs(_of_kernel, *operands) == is_kept
    assert_same(_of_kernel, *operands)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_other_types_are_left_alone(dtype: str) -> None:
    x, g = np.ones((4, 6, 8), "float32"), np.ones((4, 6, 3), "float32")
    sums = (((0, 1), (0, 1)), ((), ()))
    assert not differs(lambda x, g: lax.dot_general(x.astype(dtype), g.astype(dtype), sums), x, g)


def test_a_sum_in_another_type_is_left_alone() -> None:
    x, g = random((4, 6, 8), "float32", 0), random((4, 6, 3), "float32", 1)
    sums = (((0, 1), (0, 1)), ((), ()))
    with jax.enable_x64(True):
        assert not differs(lambda x, g: lax.dot_general(x, g, sums, preferred_element_type=jnp.float64), x, g)
