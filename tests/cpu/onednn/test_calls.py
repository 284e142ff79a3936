"""Convolutions and products that oneDNN computes have XLA's values, in every program that may call it."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from lockstep._cpu.lowerings import foreign_products
from lockstep._cpu.onednn import calls, library, pieces
from lockstep._cpu.onednn.calls import ConvolutionCall, ProductCall
from lockstep._cpu.onednn.custom_call import NAME
from lockstep._cpu.onednn.memory import Arena
from lockstep._cpu.onednn.pieces import MOST_PIECES, divide
from lockstep._cpu.onednn.threads import Threads
from lockstep._engine.runtime.buffers import ALIGNMENT
from lockstep._engine.step import backends
from tests.cpu.lowerings.both import assert_same, lowered, python_environment, random

pytestmark = pytest.mark.skipif(library.load() is None, reason=f"{library.PACKAGE} is not installed")

_LETTERS = "DHW"


def convolution(
    strides: int = 1, padding: str = "SAME", dilation: int = 1, groups: int = 1, rank: int = 2
) -> Callable[..., Any]:
    """Returns a convolution of channels last, with both gradients."""
    space = _LETTERS[-rank:]

    def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x,
            kernel,
            (strides,) * rank,
            padding,
            rhs_dilation=(dilation,) * rank,
            dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
            feature_group_count=groups,
        )

    def with_gradients(x: jax.Array, kernel: jax.Array) -> Any:
        y, gradients = jax.vjp(convolve, x, kernel)
        return y, gradients(jnp.ones_like(y) + x.mean() * jnp.arange(y.shape[-1], dtype=y.dtype))

    return with_gradients


def count_calls(f: Callable[..., Any], *args: Any) -> int:
    """Returns how often a program calls oneDNN."""
    return lowered(f, *args, ours=True).as_text().count(f"@{NAME}")


_CONVOLUTIONS: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
    "3x3": ({}, (16, 20, 20, 32), (3, 3, 32, 16)),
    "examples that threads do not divide evenly": ({}, (13, 20, 20, 32), (3, 3, 32, 32)),
    "one example": ({}, (1, 64, 64, 32), (3, 3, 32, 32)),
    "one example, strides": ({"strides": 2, "padding": "VALID"}, (1, 98, 99, 32), (3, 4, 32, 48)),
    "strides": ({"strides": 2}, (16, 21, 21, 32), (3, 3, 32, 24)),
    "strides that leave a rest": ({"strides": 3, "padding": "VALID"}, (16, 22, 22, 32), (4, 4, 32, 32)),
    "dilation": ({"dilation": 2, "padding": "VALID"}, (16, 20, 20, 32), (3, 3, 32, 24)),
    "even kernel": ({}, (16, 20, 20, 32), (4, 2, 32, 24)),
    "groups": ({"groups": 4}, (16, 20, 20, 32), (3, 3, 8, 32)),
    "depthwise": ({"groups": 64}, (4, 24, 24, 64), (3, 3, 1, 64)),
    "depthwise with strides": ({"groups": 48, "strides": 2}, (9, 33, 33, 48), (3, 3, 1, 48)),
    "depthwise with strides that leave a rest": (
        {"groups": 48, "strides": 3, "padding": "VALID"},
        (32, 40, 41, 48),
        (3, 2, 1, 48),
    ),
    "depthwise, of two outputs each": ({"groups": 32}, (8, 24, 24, 32), (3, 3, 1, 64)),
    "depthwise, of 5x5": ({"groups": 32}, (8, 24, 24, 32), (5, 5, 1, 32)),
    "depthwise, with holes": ({"groups": 32, "dilation": 2}, (8, 24, 24, 32), (3, 3, 1, 32)),
    "a line": ({"rank": 1}, (32, 200, 32), (5, 32, 64)),
    "a line, depthwise": ({"rank": 1, "groups": 32}, (8, 200, 32), (3, 1, 32)),
    "a line, depthwise, of many places": ({"rank": 1, "groups": 64, "padding": "VALID"}, (9, 120, 64), (71, 1, 64)),
    "a line, depthwise, with strides": ({"rank": 1, "groups": 64, "strides": 2}, (8, 101, 64), (5, 1, 64)),
    "a line, depthwise, with holes": ({"rank": 1, "groups": 32, "dilation": 3}, (8, 200, 32), (4, 1, 32)),
    "one line, depthwise": ({"rank": 1, "groups": 64}, (1, 4001, 64), (9, 1, 64)),
    "a volume": ({"rank": 3}, (4, 10, 10, 10, 16), (3, 3, 3, 16, 32)),
    "a volume, strides": ({"rank": 3, "strides": 2}, (2, 9, 10, 9, 8), (3, 3, 3, 8, 3)),
    "a volume, of a larger kernel": ({"rank": 3, "dilation": 2}, (4, 8, 7, 8, 8), (5, 5, 5, 8, 8)),
    "a volume, of more taps than outputs": ({"rank": 3, "strides": 2}, (4, 6, 7, 8, 16), (5, 5, 5, 16, 8)),
    "a volume of one channel": ({"rank": 3}, (4, 10, 10, 10, 1), (3, 3, 3, 1, 16)),
    "channels that fill no vector": ({}, (16, 20, 20, 27), (3, 3, 27, 35)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_convolution_and_its_gradients_are_xlas(name: str, dtype: str) -> None:
    if not library.computes(dtype):
        pytest.skip(f"this processor has no instructions for {dtype}")
    settings, *shapes = _CONVOLUTIONS[name]
    f, operands = convolution(**settings), [random(shape, dtype, i) for i, shape in enumerate(shapes)]
    assert count_calls(f, *operands) >= 1
    assert_same(f, *operands)


@pytest.mark.parametrize(
    ("images", "kernel"),
    [
        ((4, 6, 6, 6, 64), (2, 2, 2, 64, 32)),
        ((2, 5, 6, 7, 64), (3, 4, 2, 64, 32)),
        ((8, 4, 4, 4, 32), (4, 4, 4, 32, 32)),
        ((4, 8, 9, 8, 16), (4, 4, 4, 16, 1)),
        ((1, 16, 15, 64), (3, 3, 64, 64)),
        ((8, 12, 12, 32), (4, 4, 32, 48)),
    ],
)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradients_of_transposed_kernels(images: tuple[int, ...], kernel: tuple[int, ...], padding: str) -> None:
    """Volumes and single images, too, for which XLA's own loop is left only if oneDNN takes the place of it."""

    def gradient(x: jax.Array, k: jax.Array) -> Any:
        y, pull = jax.vjp(lambda k: lax.conv_transpose(x, k, (2,) * (x.ndim - 2), padding), k)
        return pull(jnp.cos(y))

    operands = random(images, "float32", 0), random(kernel, "float32", 1)
    assert count_calls(gradient, *operands) >= 1
    assert "rhs_reversal" not in lowered(gradient, *operands, ours=True).compile().as_text()
    assert_same(gradient, *operands)


@pytest.mark.parametrize(
    ("taps", "dilation", "outputs", "calls"),
    [
        ((3, 3), 1, 1, 3),
        ((2, 3), 1, 1, 3),
        ((5, 5), 1, 1, 2),
        ((3, 3), 2, 1, 2),
        ((3, 3), 1, 2, 2),
        ((3,), 1, 1, 2),
        ((5,), 1, 1, 1),
        ((3,), 2, 1, 1),
    ],
)
def test_gradients_of_depthwise_kernels(taps: tuple[int, ...], dilation: int, outputs: int, calls: int) -> None:
    """Counts calls: gradients that oneDNN has no kernel of its own for are left to the rule, which is faster."""
    f = convolution(groups=32, dilation=dilation, rank=len(taps))
    images = random((64, *[24] * len(taps), 32), "float32", 0)
    assert count_calls(f, images, random((*taps, 1, 32 * outputs), "float32", 1)) == calls


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_transposed_convolutions_of_volumes(outputs: int, padding: str) -> None:
    """XLA's loop for one of 8x16x16x16x32 takes 2.6 s."""

    def layer(x: jax.Array, k: jax.Array) -> jax.Array:
        return lax.conv_transpose(x, k, (2, 2, 2), padding)

    operands = random((2, 4, 5, 4, 8), "float32", 0), random((4, 3, 2, 8, outputs), "float32", 1)
    assert count_calls(layer, *operands) == 1
    assert_same(layer, *operands)


@pytest.mark.parametrize(
    ("settings", "images", "outputs"),
    [
        ({}, (8, 40, 40, 3), 8),
        ({"strides": 2, "padding": "VALID"}, (16, 49, 48, 4), 4),
        ({"dilation": 2}, (16, 40, 40, 2), 6),
    ],
)
def test_kernels_of_few_channels_with_several_outputs_each(
    settings: dict[str, Any], images: tuple[int, ...], outputs: int
) -> None:
    channels = images[-1]
    f = convolution(groups=channels, **settings)

    def gradient(x: jax.Array, kernel: jax.Array) -> Any:
        return f(x, kernel)[1][1]

    operands = random(images, "float32", 0), random((5, 5, 1, channels * outputs), "float32", 1)
    assert "while" not in lowered(gradient, *operands, ours=True).as_text()
    assert count_calls(gradient, *operands) >= 1
    assert_same(gradient, *operands)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ab,bc->ac", [(512, 300), (300, 256)]),
        ("ba,bc->ac", [(256, 512), (256, 260)]),
        ("ab,cb->ac", [(512, 256), (300, 256)]),
        ("abc,cde->abde", [(32, 64, 128), (128, 4, 32)]),
        ("aecd,abcd->acbe", [(24, 64, 4, 64), (24, 60, 4, 64)]),
        ("acbe,aecd->abcd", [(24, 4, 60, 64), (24, 64, 4, 64)]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_product_is_xlas(
    equation: str, shapes: list[tuple[int, ...]], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not library.computes(dtype):
        pytest.skip(f"this processor has no instructions for {dtype}")
    # Also on a processor without instructions for bfloat16.
    monkeypatch.setattr(foreign_products, "_DTYPE", dtype)

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.einsum(equation, a, b)

    operands = [random(shape, dtype, i) for i, shape in enumerate(shapes)]
    assert count_calls(product, *operands) == 1
    assert_same(product, *operands)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_for_which_xla_has_better_kernels_are_left_to_it(dtype: str) -> None:
    operands = [random((512, 512), dtype, i) for i in range(2)]
    assert count_calls(jnp.matmul, *operands) == 0


@pytest.mark.slow
def test_it_is_called_in_loops_and_branches() -> None:
    x, kernel = random((4, 16, 20, 20, 32), "float32", 0), random((3, 3, 32, 32), "float32", 1)

    def loop(x: jax.Array, kernel: jax.Array) -> Any:
        def body(carry: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
            y, (_, gradient) = convolution()(batch, carry)
            return carry - gradient / gradient.max(), y

        return lax.scan(body, kernel, x)

    assert count_calls(loop, x, kernel) > 1
    assert_same(loop, x, kernel)


def test_results_are_the_same_bits_each_time() -> None:
    x, kernel = random((16, 20, 20, 32), "float32", 0), random((3, 3, 32, 32), "float32", 1)
    compiled = lowered(convolution(), x, kernel, ours=True).compile()
    first = jax.tree.leaves(compiled(x, kernel))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(jax.tree.leaves(compiled(x, kernel)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == len(threads)
    for leaves in found:
        for one, other in zip(first, leaves, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_program_that_xla_divides_calls_it_in_shards_alone() -> None:
    x, kernel = random((16, 20, 20, 32), "float32", 0), random((3, 3, 32, 32), "float32", 1)
    whole = jax.jit(backends.apply_passes("cpu", convolution(), is_divided=True)).lower(x, kernel)
    assert NAME not in whole.as_text()
    mesh = Mesh(np.asarray(jax.devices("cpu")[:1]), ("replica",))
    over = PartitionSpec("replica"), PartitionSpec()
    specs: dict[str, Any] = {"in_specs": over, "out_specs": PartitionSpec(), "check_vma": False}
    shards = jax.shard_map(lambda x, kernel: convolution()(x, kernel)[1][1], mesh=mesh, **specs)
    assert NAME in jax.jit(backends.apply_passes("cpu", shards, is_divided=True)).lower(x, kernel).as_text()


@pytest.mark.parametrize("setting", ["0", "1"])
def test_the_environment_decides(setting: str) -> None:
    x, kernel = random((16, 20, 20, 32), "float32", 0), random((3, 3, 32, 32), "float32", 1)
    with python_environment({library.VARIABLE: setting}):
        assert count_calls(convolution(), x, kernel) == 3 * int(setting)


def test_without_the_library_xla_computes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "load", lambda: None)
    x, kernel = random((16, 20, 20, 32), "float32", 0), random((3, 3, 32, 32), "float32", 1)
    assert count_calls(convolution(), x, kernel) == 0


@pytest.mark.parametrize(
    ("shape", "kernel", "calls"),
    [
        ((8, 16, 16, 16), (3, 3, 16, 16), 0),
        # With AVX-512 oneDNN is faster from here on.
        ((8, 32, 32, 16), (3, 3, 16, 16), 3 * library.has_avx512()),
        ((8, 32, 32, 16), (3, 3, 16, 64), 3),
        # The gradient of a kernel of many channels, for which XLA's kernels are slow.
        ((4, 16, 16, 32), (3, 3, 32, 32), 3 if library.has_avx512() else 1),
        # A cheap sum, and the gradients of few channels.
        ((64, 28, 28, 1), (3, 3, 1, 32), 0),
    ],
)
def test_small_convolutions_are_left_to_xla(shape: tuple[int, ...], kernel: tuple[int, ...], calls: int) -> None:
    assert count_calls(convolution(), random(shape, "float32", 0), random(kernel, "float32", 1)) == calls


sizes = st.integers(1, 40)


def compute(call: ConvolutionCall, first: Any, second: Any) -> Any:
    """Computes a call as jax does."""

    def convolve(source: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(
            source,
            kernel,
            call.strides,
            call.padding,
            rhs_dilation=call.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=call.groups,
        )

    if call.kind == "forward":
        return convolve(first, second)
    if call.kind == "backward_data":
        return jax.vjp(lambda source: convolve(source, second), jnp.zeros(call.source))[1](first)[0]
    return jax.vjp(lambda kernel: convolve(first, kernel), jnp.zeros(call.kernel))[1](second)[0]


@given(
    examples=st.integers(1, 5),
    height=st.integers(1, 9),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    groups=st.integers(1, 2),
    kind=st.sampled_from(["forward", "backward_data", "backward_weights"]),
    cores=st.integers(1, 5),
)
@example(1, 9, 3, 2, 1, (0, 1), 1, "backward_data", 2)
def test_pieces_of_a_convolution_are_the_whole(
    examples: int,
    height: int,
    taps: int,
    stride: int,
    dilation: int,
    padding: tuple[int, int],
    groups: int,
    kind: Any,
    cores: int,
) -> None:
    places = (height + sum(padding) - (taps - 1) * dilation - 1) // stride + 1
    assume(places >= 1)
    call = ConvolutionCall(
        *("float32", kind, (examples, height, 3, 2), (taps, 2, 2 // groups, 4), (examples, places, 2, 4)),
        *((stride, 1), (dilation, 1), (padding, (0, 0)), groups),
    )
    assert calls.from_text(calls.as_text(call)) == call
    # Small numbers, whose sums are exact.
    shapes = {
        "forward": (call.source, call.kernel, call.output),
        "backward_data": (call.output, call.kernel, call.source),
        "backward_weights": (call.source, call.output, call.kernel),
    }
    first, second = (np.random.default_rng(i).integers(-8, 8, shapes[kind][i]).astype(np.float32) for i in (0, 1))
    with mock.patch.object(pieces, "_LEAST_PRODUCTS", 1):
        found = divide(call, cores)
    result = np.zeros(math.prod(shapes[kind][2]), np.float32)
    for piece in found:
        part: Any = piece.call
        given_first = {"backward_data": part.output}.get(kind, part.source)
        given_second = {"backward_weights": part.output}.get(kind, part.kernel)
        values = compute(
            part,
            first.reshape(-1)[piece.first :][: math.prod(given_first)].reshape(given_first),
            second.reshape(-1)[piece.second :][: math.prod(given_second)].reshape(given_second),
        )
        size = math.prod(part.results[0])
        result[piece.result :][:size] += np.asarray(values).reshape(-1)
    np.testing.assert_array_equal(result.reshape(shapes[kind][2]), compute(call, first, second))
    assert len(found) <= min(cores, MOST_PIECES)


@pytest.mark.parametrize("kind", ["forward", "backward_data", "backward_weights"])
def test_one_example_is_computed_on_all_cores(kind: Any) -> None:
    call = ConvolutionCall(
        "float32", kind, (1, 64, 64, 32), (3, 3, 32, 32), (1, 64, 64, 32), (1, 1), (1, 1), ((1, 1), (1, 1)), 1
    )
    assert len(divide(call, 2)) == 2
    assert len(divide(call, 4)) == 4


@given(sizes, sizes, sizes, sizes, st.booleans(), sizes)
def test_pieces_of_a_product_are_the_whole(m: int, k: int, n: int, batch: int, has_batch: bool, cores: int) -> None:
    m, k, n = m * 20, k * 20, n * 20
    first, second = ((m, k), (k, 1)), ((k, n), (n, 1))
    if has_batch:
        first, second = ((batch, m, k), (m * k, k, 1)), ((batch, k, n), (k * n, n, 1))
    call: Any = ProductCall("float32", first, second, (batch, m, n) if has_batch else (m, n))
    assert calls.from_text(calls.as_text(call)) == call
    found = divide(call, cores)
    parts: list[Any] = [piece.call for piece in found]
    assert sum(part.first[0][0] for part in parts) == first[0][0]
    ends = np.cumsum([0, *(part.first[0][0] for part in parts)])[:-1]
    rows = m if has_batch else 1
    assert [piece.first for piece in found] == [end * rows * k for end in ends]
    assert [piece.second for piece in found] == [end * k * n * has_batch for end in ends]
    assert [piece.result for piece in found] == [end * rows * n for end in ends]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not bind threads")
def test_pieces_are_computed_on_other_cores_than_the_callers() -> None:
    core = min(os.sched_getaffinity(0))
    (beside,) = Threads([core, core + 1], lambda: core + 1).beside_caller(1)
    assert beside.submit(os.sched_getaffinity, 0).result() == {core}


def test_each_piece_has_a_thread_of_its_own() -> None:
    assert len({id(e) for e in Threads(range(4), lambda: 2).beside_caller(3)}) == 3


@pytest.mark.parametrize(("cores", "current"), [([], 0), ([0, 1], 7), (range(MOST_PIECES + 1), 0)])
def test_where_cores_are_unknown_or_many_the_system_places_threads(cores: list[int], current: int) -> None:
    (beside,) = Threads(cores, lambda: current).beside_caller(1)
    assert beside.submit(os.cpu_count).result() == os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        assert beside.submit(os.sched_getaffinity, 0).result() == os.sched_getaffinity(0)


def test_memory_is_lent_to_one_call_at_a_time() -> None:
    arena = Arena()
    with arena.lend(100) as one, arena.lend(100) as other:
        assert abs(one - other) >= 100
        assert one % ALIGNMENT == other % ALIGNMENT == 0
    with arena.lend(50) as again:
        assert again in (one, other)
