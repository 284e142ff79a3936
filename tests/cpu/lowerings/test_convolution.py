"""Convolutions and their gradients: XLA's numbers, in every layout, type and transformation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax

from tests.cpu.lowerings.both import assert_same, differs, lowered, random
from tests.support.exhaustive import slow_but

LAYOUTS = {
    1: [("NWC", "WIO", "NWC"), ("NCW", "OIW", "NCW")],
    2: [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HWNC", "OHWI", "NCHW")],
    3: [("NDHWC", "DHWIO", "NDHWC"), ("NCDHW", "OIDHW", "NCDHW")],
}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes and parameters of a convolution whose output has at least one place."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    window = [draw(st.integers(1, 3 if rank > 1 else 5)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    space = [(size - 1) * d + 1 + draw(st.integers(0, 5)) for size, d in zip(window, dilation, strict=True)]
    padding = draw(st.sampled_from(["SAME", "VALID", "uneven"]))
    if padding == "uneven":
        padding = [(draw(st.integers(-1 if s > w else 0, 2)), draw(st.integers(0, 2))) for s, w in zip(space, window)]  # noqa: B905
    groups = draw(st.sampled_from([1, 1, 1, 2]))
    channels, kernels = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 6, 32]))
    return {
        "layout": draw(st.sampled_from(LAYOUTS[rank])),
        "lhs": [draw(st.integers(1, 3)), channels * groups, *space],
        "rhs": [kernels * groups, channels, *window],
        "window_strides": [draw(st.integers(1, 2)) for _ in range(rank)],
        "padding": padding,
        "rhs_dilation": dilation,
        "feature_group_count": groups,
    }


def build(case: dict[str, Any], dtype: str, seed: int) -> tuple[Any, Any, Any]:
    """Returns the convolution, an input and a kernel."""
    case = dict(case)
    lhs, rhs, layout = case.pop("lhs"), case.pop("rhs"), case.pop("layout")
    spaces = "DHW"[3 - (len(lhs) - 2) :] if len(lhs) > 3 else "W"
    x, k = random(tuple(lhs), dtype, seed), random(tuple(rhs), dtype, seed + 1)
    x = x.transpose([f"NC{spaces}".index(c) for c in layout[0]])
    k = k.transpose([f"OI{spaces}".index(c) for c in layout[1]])
    return lambda a, b: lax.conv_general_dilated(a, b, dimension_numbers=layout, **case), x, k


def with_gradients(f: Any) -> Any:
    """`f` and its gradients, given a cotangent that differs from place to place."""

    def compute(x: Any, k: Any) -> Any:
        out, back = jax.vjp(f, x, k)
        cotangent = jnp.sin(jnp.arange(out.size, dtype="float32")).reshape(out.shape).astype(out.dtype)
        return out, back(cotangent)

    return compute


def plain(n: int, h: int, ci: int, co: int, taps: int, stride: int = 1, padding: str = "SAME") -> dict[str, Any]:
    """A convolution as layers write it."""
    return {
        "layout": LAYOUTS[2][0],
        "lhs": [n, ci, h, h],
        "rhs": [co, ci, taps, taps],
        "window_strides": [stride, stride],
        "padding": padding,
        "rhs_dilation": [1, 1],
        "feature_group_count": 1,
    }


# Each of them meets another rule; all meet the canonical form.
NAMED = {
    "one channel": plain(2, 9, 1, 32, 3, padding="VALID"),
    "one channel, stride 2": plain(2, 9, 1, 8, 3, stride=2),
    "three channels": plain(2, 8, 3, 32, 3),
    "many terms": plain(2, 8, 3, 8, 5),
    "one output": plain(2, 8, 8, 1, 3),
    "one output, dilated": {**plain(2, 8, 6, 1, 3, padding="VALID"), "rhs_dilation": [1, 2]},
    "1x1": plain(2, 6, 5, 7, 1),
    "1x1, stride 2": plain(2, 7, 5, 7, 1, stride=2),
    "1x1 over one place": plain(3, 1, 5, 7, 1),
    "ordinary": plain(2, 8, 8, 8, 3),
    "groups": {**plain(2, 6, 4, 12, 3), "lhs": [2, 16, 6, 6], "rhs": [12, 4, 3, 3], "feature_group_count": 4},
    "groups, stride 2": {**plain(2, 7, 3, 6, 3, stride=2), "lhs": [2, 9, 7, 7], "feature_group_count": 3},
    "a kernel larger than the picture": plain(8, 2, 16, 32, 3),
    "a kernel larger than the picture, stride 2": plain(16, 3, 16, 16, 5, stride=2),
}


@pytest.mark.slow
@settings(max_examples=5)
@given(case=cases(), dtype=st.sampled_from(["float32", "bfloat16", "float16"]), seed=st.integers(0, 99))
@example(case={**plain(2, 6, 2, 3, 3), "layout": ("HWNC", "OHWI", "NCHW")}, dtype="float32", seed=0)
@example(case={**plain(2, 6, 7, 1, 3), "layout": ("HWNC", "OHWI", "NCHW")}, dtype="bfloat16", seed=0)
def test_any_convolution(case: dict[str, Any], dtype: str, seed: int) -> None:
    f, x, k = build(case, dtype, seed)
    assert_same(with_gradients(f), x, k)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_the_gradients_of_usual_layers(name: str) -> None:
    f, x, k = build(NAMED[name], "float32", 0)
    assert differs(with_gradients(f), x, k)
    assert_same(with_gradients(f), x, k)


@pytest.mark.slow
@settings(max_examples=10)
@given(
    size=st.integers(1, 6),
    taps=st.integers(1, 5),
    stride=st.integers(2, 3),
    padding=st.sampled_from(["SAME", "VALID", [(0, 1)]]),
    rank=st.sampled_from([1, 2]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
)
@example(size=4, taps=3, stride=2, padding="SAME", rank=2, dtype="float32")
def test_transposed_convolutions(size: int, taps: int, stride: int, padding: Any, rank: int, dtype: str) -> None:
    space = padding if isinstance(padding, str) else padding * rank
    x, k = random((2, *(size,) * rank, 3), dtype, 0), random((*(taps,) * rank, 3, 2), dtype, 1)
    f = with_gradients(lambda a, b: lax.conv_transpose(a, b, (stride,) * rank, space))
    if 0 not in jax.eval_shape(f, x, k)[0].shape:
        assert_same(f, x, k)


def test_a_transposed_kernel_s_gradient_does_not_read_backwards() -> None:
    """XLA has a naive loop only for a window that is reversed."""

    def gradient(x: Any, g: Any) -> Any:
        layer = lambda k: lax.conv_transpose(x, k, (2, 2), "SAME")  # noqa: E731
        return jax.linear_transpose(layer, jax.ShapeDtypeStruct((3, 3, 3, 2), "float32"))(g)

    arrays = random((2, 7, 7, 3), "float32", 0), random((2, 14, 14, 2), "float32", 1)
    own, ours = (lowered(gradient, *arrays, ours=ours).compile().as_text() for ours in (False, True))
    assert "rhs_reversal" in own
    assert "rhs_reversal" not in ours


def test_a_transposed_kernel_s_gradient_is_no_product_of_all_places() -> None:
    """Its kernel, the output's gradient, is larger than its picture, for which there is another rule."""

    def gradient(x: Any, g: Any) -> Any:
        layer = lambda k: lax.conv_transpose(x, k, (2, 2), "VALID")  # noqa: E731
        return jax.linear_transpose(layer, jax.ShapeDtypeStruct((4, 4, 32, 16), "float32"))(g)

    arrays = random((4, 4, 4, 32), "float32", 0), random((4, 10, 10, 16), "float32", 1)
    needed = 2 * 4 * (4 * 4) * (4 * 4) * 32 * 16
    assert lowered(gradient, *arrays, ours=True).compile().cost_analysis()["flops"] < 2 * needed


@pytest.mark.slow
@settings(max_examples=8)
@given(
    space=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    taps=st.integers(3, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.sampled_from(["SAME", [(2, 4)]]),
    layout=st.integers(0, 1),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
@example(space=[2, 2], taps=3, stride=1, dilation=1, padding="SAME", layout=0, dtype="float32")
@example(space=[3, 1], taps=4, stride=2, dilation=2, padding=[(5, 4)], layout=1, dtype="float32")
def test_kernels_larger_than_the_picture(
    space: list[int], taps: int, stride: int, dilation: int, padding: Any, layout: int, dtype: str
) -> None:
    rank = len(space)
    case = {
        "layout": LAYOUTS[rank][layout],
        "lhs": [8, 16, *space],
        "rhs": [24, 16, *(taps,) * rank],
        "window_strides": [stride] * rank,
        "padding": padding if isinstance(padding, str) else padding * rank,
        "rhs_dilation": [dilation] * rank,
    }
    f, x, k = build(case, dtype, 0)
    if 0 not in jax.eval_shape(f, x, k).shape:
        assert_same(with_gradients(f), x, k)


def test_groups_are_convolutions_of_their_own() -> None:
    """XLA convolves the channels of all groups with each other for a kernel's gradient."""
    f, x, k = build(NAMED["groups"], "float32", 0)
    own, ours = (lowered(with_gradients(f), x, k, ours=ours).as_text() for ours in (False, True))
    assert "group_count = 4" in own
    assert "group_count = 4" not in ours


def test_a_kernel_larger_than_the_picture_is_a_product() -> None:
    """XLA has a naive loop only for it."""
    f, x, k = build(plain(8, 2, 64, 64, 3), "float32", 0)
    own, ours = (str(lowered(f, x, k, ours=ours).as_text()) for ours in (False, True))
    assert "stablehlo.convolution" in own
    assert "stablehlo.convolution" not in ours


# Of more elements than the pictures that they see.
LARGE = {
    "3x3": plain(3, 5, 256, 256, 3),
    "as large as the picture": plain(2, 3, 256, 320, 3),
    "no padding": plain(2, 5, 320, 256, 3, padding="VALID"),
    "even and with holes": {**plain(2, 5, 256, 256, 2), "rhs_dilation": [1, 2]},
    "channels first": {**plain(2, 4, 256, 256, 3), "layout": LAYOUTS[2][1]},
    "a line": {
        "layout": LAYOUTS[1][0],
        "lhs": [3, 256, 11],
        "rhs": [256, 256, 4],
        "window_strides": [1],
        "padding": "SAME",
    },
}


@pytest.mark.parametrize("name", slow_but(LARGE, "even and with holes", "channels first"))
def test_large_kernels_are_matrices_of_products(name: str) -> None:
    f, x, k = build(LARGE[name], "float32", 0)
    program = lowered(with_gradients(f), x, k, ours=True).as_text()
    assert "stablehlo.convolution" not in program and "custom_call" not in program
    assert_same(with_gradients(f), x, k)


def test_no_large_kernel_is_transposed() -> None:
    """XLA reads it an element at a time from another line of the cache."""
    f, x, k = build(LARGE["3x3"], "float32", 0)
    own, ours = (
        lowered(lambda x, k: jax.vjp(lambda x: f(x, k), x)[1](f(x, k)), x, k, ours=ours).compile().as_text()
        for ours in (False, True)
    )
    written = "f32[3,3,256,256]{3,2,1,0} fusion("
    assert written in own and "reverse(" in own
    assert written not in ours and "reverse(" not in ours


@pytest.mark.parametrize(
    ("case", "is_product"),
    [
        (plain(8, 4, 256, 256, 3), (True, True, True)),
        (plain(16, 6, 256, 256, 3), (False, True, False)),
        (plain(8, 14, 256, 256, 3), (False, False, False)),
        (plain(8, 4, 128, 256, 3), (False, False, False)),
        (plain(16, 4, 256, 256, 3, stride=2), (False, False, True)),
    ],
    ids=["few places", "more places", "many places", "few channels", "stride 2"],
)
def test_where_a_product_is_faster(case: dict[str, Any], is_product: tuple[bool, bool, bool]) -> None:
    f, x, k = build(case, "float32", 0)
    y = f(x, k)
    of_input, of_kernel = jax.linear_transpose(lambda x: f(x, k), x), jax.linear_transpose(lambda k: f(x, k), k)
    programs = [lowered(f, x, k, ours=True), lowered(of_input, y, ours=True), lowered(of_kernel, y, ours=True)]
    others = ("stablehlo.convolution", "custom_call")
    assert tuple(not any(other in program.as_text() for other in others) for program in programs) == is_product


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["SAME", "VALID", [(2, 0), (0, 3)]], ids=str)
@pytest.mark.parametrize("size", [(9, 12), (6, 31)])
def test_the_gradient_of_a_kernel_with_one_output(size: tuple[int, int], padding: Any) -> None:
    x, k = random((3, *size, 7), "float32", 0), random((3, 2, 7, 1), "float32", 1)

    def of_kernel(x: Any, k: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        y, back = jax.vjp(lambda k: lax.conv_general_dilated(x, k, (1, 1), padding, dimension_numbers=numbers), k)
        return back(jnp.cos(y))[0]

    assert differs(of_kernel, x, k)
    assert_same(of_kernel, x, k)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one channel", "one output", "1x1, stride 2"])
def test_float64(name: str) -> None:
    with jax.enable_x64(True):
        f, x, k = build(NAMED[name], "float64", 0)
        assert_same(with_gradients(f), x, k)


@pytest.mark.slow
def test_precision_and_result_type_are_kept() -> None:
    f, x, k = build(NAMED["1x1"], "bfloat16", 0)
    wide = {**NAMED["1x1"], "preferred_element_type": jnp.float32, "precision": lax.Precision.HIGHEST}
    f, x, k = build(wide, "bfloat16", 0)
    assert_same(f, x, k)
    g, x, k = build({**NAMED["one channel"], "precision": lax.Precision.HIGHEST}, "float32", 0)
    assert_same(with_gradients(g), x, k)


def test_empty_operands() -> None:
    f, x, k = build({**NAMED["1x1"], "lhs": [0, 5, 6, 6]}, "float32", 0)
    assert_same(f, x, k)
    f, x, k = build({**NAMED["one channel"], "lhs": [0, 1, 6, 6]}, "float32", 0)
    assert_same(f, x, k)
