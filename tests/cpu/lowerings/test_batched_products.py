"""Products of many pairs of matrices: XLA's numbers, in whatever order the axes are."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tests.cpu.lowerings.both import assert_same, differs, lowered, random


@st.composite
def products(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Shapes of two operands, and the numbers of the axes that they have in common."""
    batch, contracted, first, second = (
        [(f"{kind}{i}", draw(st.sampled_from([1, 2, 3, 5]))) for i in range(draw(st.integers(0 + (kind == "b"), 2)))]
        for kind in "bcfs"
    )
    sizes = dict((*batch, *contracted, *first, *second))
    lhs = draw(st.permutations([name for name, _ in (*batch, *contracted, *first)]))
    rhs = draw(st.permutations([name for name, _ in (*batch, *contracted, *second)]))
    summed, common = draw(st.permutations([n for n, _ in contracted])), draw(st.permutations([n for n, _ in batch]))
    numbers = tuple(tuple(tuple(map(names.index, part)) for names in (lhs, rhs)) for part in (summed, common))
    return tuple(sizes[n] for n in lhs), tuple(sizes[n] for n in rhs), numbers


@given(products(), st.sampled_from(["float32", "float64"]))
def test_any_axes(case: tuple[tuple[int, ...], tuple[int, ...], Any], dtype: str) -> None:
    lhs, rhs, numbers = case
    with jax.enable_x64(True):
        assert_same(lambda a, b: lax.dot_general(a, b, numbers), random(lhs, dtype, 0), random(rhs, dtype, 1))


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.sum(jax.nn.dot_product_attention(q, k, v, is_causal=True) ** 2)


@pytest.mark.parametrize(("places", "heads"), [((7, 7), (2, 2)), ((9, 5), (4, 2)), ((1, 6), (2, 1))])
def test_attention_and_its_gradient(places: tuple[int, int], heads: tuple[int, int]) -> None:
    q, k, v = (random((3, places[i], heads[i], 8), "float32", n) for n, i in enumerate((0, 1, 1)))
    assert_same(jax.value_and_grad(_attention, (0, 1, 2)), q, k, v)


def test_large_operands_are_read_as_they_lie() -> None:
    # The gradient by the values: attention's weights are read row by row, and the copies are of the small operands.
    weights, gradient = random((2, 4, 64, 64), "float32", 0), random((2, 64, 4, 8), "float32", 1)
    numbers = (((2,), (1,)), ((0, 1), (0, 2)))
    text = lowered(lambda p, g: lax.dot_general(p, g, numbers), weights, gradient, ours=True).as_text()
    transpositions = [line for line in text.splitlines() if "stablehlo.transpose" in line]
    assert transpositions and not any("2x4x64x64" in line for line in transpositions)


@pytest.mark.parametrize(
    ("equation", "is_ours"),
    [
        ("bij,bjk->bik", False),
        ("bij,bkj->bik", False),
        ("bji,bjk->bik", True),
        ("ibj,bjk->bik", True),
        ("bij,jbk->bik", True),
        ("ij,jk->ik", False),
    ],
)
def test_which_are_ours(equation: str, is_ours: bool) -> None:
    operands = [random((6,) * len(part), "float32", 0) for part in equation.split("->")[0].split(",")]
    assert differs(lambda *x: jnp.einsum(equation, *x), *operands) is is_ours


def test_each_operand_keeps_its_precision() -> None:
    p, g = random((2, 4, 64, 64), "float32", 0), random((2, 64, 4, 8), "float32", 1)
    precision = lax.Precision.HIGHEST, lax.Precision.DEFAULT

    def product(p: jax.Array, g: jax.Array) -> jax.Array:
        return lax.dot_general(p, g, (((2,), (1,)), ((0, 1), (0, 2))), precision=precision)

    own, ours = (lowered(product, p, g, ours=ours).as_text() for ours in (False, True))
    assert "precision = [HIGHEST, DEFAULT]" in own and "precision = [DEFAULT, HIGHEST]" in ours


@pytest.mark.parametrize("dtype", ["bfloat16", "int32"])
def test_other_types_are_left(dtype: str) -> None:
    a, b = random((3, 4, 5), dtype, 0), random((3, 4, 6), dtype, 1)
    assert_same(lambda a, b: jnp.einsum("bji,bjk->bik", a, b), a, b)


@pytest.mark.slow
def test_every_order_of_three_axes() -> None:
    for lhs, rhs in itertools.product(itertools.permutations("bij"), itertools.permutations("bjk")):
        sizes = {"b": 3, "i": 4, "j": 5, "k": 6}
        a, b = (random(tuple(sizes[c] for c in part), "float32", n) for n, part in enumerate((lhs, rhs)))
        equation = f"{''.join(lhs)},{''.join(rhs)}->bik"
        assert_same(lambda a, b, equation=equation: jnp.einsum(equation, a, b), a, b)


def test_a_product_is_divided_between_devices() -> None:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])
    sharding = NamedSharding(mesh, PartitionSpec("d"))

    def step(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return jax.grad(_attention, (0, 1, 2))(*(lax.with_sharding_constraint(x, sharding) for x in (q, k, v)))

    assert_same(step, *(random((4, 12, 2, 8), "float32", seed) for seed in range(3)))
