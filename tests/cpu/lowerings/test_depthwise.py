"""Depthwise convolutions and their gradients: XLA's numbers, in every layout, type and transformation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lockstep._engine.step import backends
from tests.cpu.lowerings.both import assert_same, differs, lowered, random
from tests.cpu.lowerings.test_convolution import LAYOUTS, build, with_gradients


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes and parameters of a depthwise convolution whose output has at least one place."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    window = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    space = [(size - 1) * d + 1 + draw(st.integers(0, 9)) for size, d in zip(window, dilation, strict=True)]
    padding = draw(st.sampled_from(["SAME", "VALID", "uneven"]))
    if padding == "uneven":
        roomy = [s > (w - 1) * d + 2 for s, w, d in zip(space, window, dilation, strict=True)]
        padding = [(draw(st.integers(-1 if room else 0, 2)), draw(st.integers(-1 if room else 0, 2))) for room in roomy]
    channels, multiplier = draw(st.integers(2, 5)), draw(st.sampled_from([1, 1, 2, 3]))
    return {
        "layout": draw(st.sampled_from(LAYOUTS[rank])),
        "lhs": [draw(st.integers(1, 6)), channels, *space],
        "rhs": [channels * multiplier, 1, *window],
        "window_strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "padding": padding,
        "rhs_dilation": dilation,
        "feature_group_count": channels,
    }


def plain(size: int, channels: int, stride: int = 1, taps: int = 3, multiplier: int = 1, n: int = 4) -> dict[str, Any]:
    """A depthwise convolution as layers write it."""
    return {
        "layout": LAYOUTS[2][0],
        "lhs": [n, channels, size, size],
        "rhs": [channels * multiplier, 1, taps, taps],
        "window_strides": [stride, stride],
        "padding": "SAME",
        "rhs_dilation": [1, 1],
        "feature_group_count": channels,
    }


NAMED = {
    "one block": plain(5, 3, n=1),
    "several images in a block": plain(2, 3, n=8),
    "several blocks in an image": plain(19, 4),
    "stride 2": plain(12, 3, stride=2),
    "stride beyond the kernel": plain(11, 3, stride=4),
    "multiplier 2": plain(6, 3, multiplier=2),
    "5x5": plain(9, 2, taps=5),
    "more padding than picture": plain(4, 2, taps=7, n=6),
    "padding beside strides": plain(6, 3, stride=2, taps=5),
    "9x9": plain(12, 3, taps=9),
    "9x9, stride 2": plain(12, 3, stride=2, taps=9),
    "9x9 beyond the picture": plain(4, 2, taps=9, n=6),
    "as large as the picture": plain(5, 3, taps=5) | {"padding": "VALID"},
    "as large, multiplier 2": plain(5, 3, taps=5, multiplier=2) | {"padding": "VALID"},
    "as large, stride 2": plain(5, 3, taps=5, stride=2) | {"padding": "VALID"},
    "as high": plain(7, 3) | {"lhs": [4, 3, 7, 9], "rhs": [6, 1, 7, 1], "padding": "VALID"},
    "as large, many outputs": plain(5, 3, taps=5, multiplier=9) | {"padding": "VALID"},
    "one row within padding": plain(7, 3) | {"lhs": [4, 3, 1, 9], "rhs": [3, 1, 5, 1]},
}


@pytest.mark.slow
@settings(max_examples=6)
@given(case=cases(), dtype=st.sampled_from(["float32", "bfloat16", "float16"]), seed=st.integers(0, 99))
def test_any_depthwise_convolution(case: dict[str, Any], dtype: str, seed: int) -> None:
    f, x, k = build(case, dtype, seed)
    assert_same(with_gradients(f), x, k)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_usual_layers(name: str) -> None:
    f, x, k = build(NAMED[name], "float32", 0)
    assert differs(f, x, k)
    assert differs(lambda x, k: jax.vjp(f, x, k)[1](f(x, k)), x, k)
    assert_same(with_gradients(f), x, k)


@pytest.mark.slow
def test_float64() -> None:
    with jax.enable_x64(True):
        f, x, k = build(NAMED["several blocks in an image"], "float64", 0)
        assert_same(with_gradients(f), x, k)


@pytest.mark.parametrize(
    "case",
    [
        {**NAMED["one block"], "lhs": [0, 3, 5, 5]},
        {**NAMED["one block"], "rhs": [60, 20, 3, 3], "lhs": [2, 60, 5, 5], "feature_group_count": 3},
        {**NAMED["one block"], "preferred_element_type": jnp.float64},
    ],
)
def test_what_is_left_to_xla(case: dict[str, Any]) -> None:
    with jax.enable_x64(True):
        f, x, k = build(case, "float32", 0)
        assert_same(f, x, k)


X = random((4, 14, 14, 3), "float32", 0)
KERNEL = random((3, 3, 1, 3), "float32", 1)


def loss(kernel: Any, x: Any) -> Any:
    """Depthwise layers, with strides and without, between nonlinearities."""
    numbers = ("NHWC", "HWIO", "NHWC")
    for stride in (2, 1):
        y = lax.conv_general_dilated(
            jnp.tanh(x), kernel, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=3
        )
        x = jnp.sin(y) ** 2
    return x.mean()


GRADIENT = jax.value_and_grad(loss, (0, 1))


def _scan(kernel: Any, x: Any) -> Any:
    def step(kernel: Any, _: None) -> Any:
        value, (gradient, _) = GRADIENT(kernel, x)
        return kernel - 0.1 * gradient, value

    return lax.scan(step, kernel, None, length=3)


def test_an_input_gradient_without_strides_is_xlas_own_in_a_branch() -> None:
    numbers = ("NHWC", "HWIO", "NHWC")

    def layer(x: Any) -> Any:
        return lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=3)

    text = lowered(lambda g: jax.vjp(layer, X)[1](g)[0], X, ours=True).as_text()
    branch = text[text.index("stablehlo.case") :]
    assert "stablehlo.convolution" in branch
    assert text.count("stablehlo.convolution") == 1
    assert "stablehlo.convolution" not in lowered(layer, X, ours=True).as_text()


TRANSFORMED: dict[str, Callable[..., Any]] = {
    "grad": GRADIENT,
    "scan": _scan,
    "vmap": lambda k, x: jax.vmap(GRADIENT, (None, 0))(k, x[:, None]),
    "vmap of kernels": lambda k, x: jax.vmap(GRADIENT, (0, None))(jnp.stack([k, -k]), x),
    "vmap of both": lambda k, x: jax.vmap(GRADIENT)(jnp.stack([k, -k]), jnp.stack([x, 2 * x])),
    "second derivative": lambda k, x: jax.grad(lambda x: (jax.grad(loss, 1)(k, x) ** 2).sum())(x),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMED)
def test_under(name: str) -> None:
    assert_same(TRANSFORMED[name], KERNEL, X)


def _mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2,), ("replica",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [False, True])
def test_under_shard_map(check_vma: bool) -> None:
    def replica(kernel: Any, x: Any) -> Any:
        value, (gradient, _) = GRADIENT(kernel, x)
        return lax.pmean(value, "replica"), gradient if check_vma else lax.pmean(gradient, "replica")

    specs = (PartitionSpec(), PartitionSpec("replica"))
    mapped = jax.shard_map(replica, mesh=_mesh(), in_specs=specs, out_specs=PartitionSpec(), check_vma=check_vma)
    assert_same(mapped, KERNEL, X)


@pytest.mark.slow
def test_when_xla_divides_the_batch() -> None:
    sharding = NamedSharding(_mesh(), PartitionSpec("replica"))
    assert_same(lambda k, x: GRADIENT(k, lax.with_sharding_constraint(x, sharding)), KERNEL, X)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        NAMED["9x9"],
        NAMED["9x9 beyond the picture"],
        {**plain(19, 4, taps=9), "window_strides": [2, 1], "rhs_dilation": [1, 2]},
        {**plain(14, 2), "rhs": [2, 1, 33, 5], "padding": [(20, 18), (2, 0)]},
    ],
)
def test_kernels_of_many_places_without_a_library(case: dict[str, Any]) -> None:
    f, x, k = build(case, "float32", 0)
    gradients = with_gradients(f)
    # Operations alone, as in a program that XLA divides between devices.
    ours = jax.jit(backends.apply_passes("cpu", gradients, is_divided=True)).lower(x, k)
    assert "custom_call @lockstep" not in ours.as_text()
    for expected, found in zip(jax.tree.leaves(gradients(x, k)), jax.tree.leaves(ours.compile()(x, k)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


@pytest.mark.slow
@settings(max_examples=3)
@given(
    space=st.lists(st.integers(2, 7), min_size=1, max_size=2),
    channels=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.integers(1, 3),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_1x1_kernels(space: list[int], channels: tuple[int, int], stride: int, dtype: str) -> None:
    rank = len(space)
    case = {
        **plain(4, 3),
        "layout": LAYOUTS[rank][0],
        "lhs": [3, channels[0], *space],
        "rhs": [channels[1], channels[0], *[1] * rank],
        "window_strides": [stride] * rank,
        "rhs_dilation": [1] * rank,
        "feature_group_count": 1,
    }
    f, x, k = build(case, dtype, 0)
    assert_same(with_gradients(f), x, k)
