"""Biases and relus that convolutions compute along have XLA's values, and so have gradients of biases.

What a program needs by itself stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lockstep._cpu.onednn import library
from tests.cpu.lowerings.both import assert_same, lowered, random
from tests.support.exhaustive import slow_but

pytestmark = pytest.mark.skipif(library.load() is None, reason=f"{library.PACKAGE} is not installed")

_X, _KERNEL = (16, 20, 20, 32), (3, 3, 32, 24)


def convolve(x: jax.Array, kernel: jax.Array, *, strides: int = 1, groups: int = 1, layout: str = "NHWC") -> jax.Array:
    space = layout.replace("N", "").replace("C", "")
    numbers = (layout, f"{space}IO", layout)
    return lax.conv_general_dilated(
        x, kernel, (strides,) * len(space), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def differentiate(layer: Callable[..., jax.Array]) -> Callable[..., Any]:
    """Returns a function of a layer's operands that gives its output and their gradients."""

    def both_ways(*operands: jax.Array) -> Any:
        y, gradients = jax.vjp(layer, *operands)
        return y, gradients(jnp.tanh(y))

    return both_ways


def count_biases(f: Callable[..., Any], *args: Any) -> int:
    """Returns how many calls of oneDNN have biases, or sum their gradients."""
    return _count_calls("has_bias", f, args)


def count_relus(f: Callable[..., Any], *args: Any) -> int:
    """Returns how many calls of oneDNN apply a relu."""
    return _count_calls("has_relu", f, args)


def _count_calls(field: str, f: Callable[..., Any], args: Sequence[Any]) -> int:
    return lowered(f, *args, ours=True).as_text().count(rf"\22{field}\22: true")


def operands(shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    return [random(shape, "float32", i) for i, shape in enumerate(shapes)]


_LAYERS: dict[str, tuple[Callable[..., jax.Array], tuple[tuple[int, ...], ...]]] = {
    "reshaped": (lambda x, k, b: convolve(x, k) + b.reshape(1, 1, 1, -1), (_X, _KERNEL, (24,))),
    "broadcast": (lambda x, k, b: convolve(x, k) + b, (_X, _KERNEL, (24,))),
    "on the left": (lambda x, k, b: b + convolve(x, k), (_X, _KERNEL, (24,))),
    "one array in memory": (
        lambda x, k, b: convolve(x, k) + jnp.broadcast_to(b, (16, 20, 20, 24)),
        (_X, _KERNEL, (24,)),
    ),
    "strides": (lambda x, k, b: convolve(x, k, strides=2) + b, ((16, 21, 21, 32), _KERNEL, (24,))),
    "channels second": (
        lambda x, k, b: convolve(x, k, layout="NCHW") + b.reshape(1, -1, 1, 1),
        ((16, 32, 20, 20), _KERNEL, (24,)),
    ),
    "a volume": (
        lambda x, k, b: convolve(x, k, layout="NDHWC") + b,
        ((4, 10, 10, 10, 16), (3, 3, 3, 16, 32), (32,)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _LAYERS)
def test_a_bias_and_its_gradient_are_xlas(name: str) -> None:
    layer, shapes = _LAYERS[name]
    arrays = operands(shapes)
    assert count_biases(differentiate(layer), *arrays) == 2
    assert_same(differentiate(layer), *arrays)


@pytest.mark.slow
def test_lines_have_biases_whose_gradients_are_xlas() -> None:
    def layer(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        return convolve(x, kernel, layout="NWC") + bias

    arrays = operands(((32, 200, 32), (5, 32, 64), (64,)))
    # Without AVX-512 the kernel's gradient is XLA's.
    assert count_biases(differentiate(layer), *arrays) == 1 + library.has_avx512()
    assert_same(differentiate(layer), *arrays)


@pytest.mark.slow
def test_groups_have_biases_whose_gradients_are_xlas() -> None:
    def layer(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        return convolve(x, kernel, groups=4) + bias

    arrays = operands((_X, (3, 3, 8, 32), (32,)))
    assert count_biases(differentiate(layer), *arrays) == 1
    assert_same(differentiate(layer), *arrays)


@pytest.mark.parametrize(("shape", "kernels"), [((16, 12, 12, 1), 32), ((8, 16, 16, 3), 32)])
def test_gradients_of_small_kernels_have_a_row_for_the_bias(shape: tuple[int, ...], kernels: int) -> None:
    def layer(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        return convolve(x, kernel) + bias

    arrays = operands((shape, (3, 3, shape[-1], kernels), (kernels,)))
    rows, places = 9 * shape[-1] + 1, shape[0] * shape[1] * shape[2]
    text = lowered(differentiate(layer), *arrays, ours=True).as_text()
    assert f"(tensor<{rows}x{places}xf32>, tensor<{places}x{kernels}xf32>)" in text
    assert_same(differentiate(layer), *arrays)


_LEFT_ALONE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "a sum along another dimension": (lambda x, k, b: convolve(x, k) + b[:, None], (_X, (3, 3, 32, 20), (20,))),
    "a residual": (lambda x, k, b: convolve(x, k) + b, (_X, _KERNEL, (16, 20, 20, 24))),
    "a number": (lambda x, k, b: convolve(x, k) + b, (_X, _KERNEL, ())),
}


@pytest.mark.parametrize("name", _LEFT_ALONE)
def test_what_is_no_bias_is_added_by_xla(name: str) -> None:
    layer, shapes = _LEFT_ALONE[name]
    assert count_biases(layer, *operands(shapes)) == 0


def test_a_convolution_whose_own_value_is_needed_keeps_it() -> None:
    def layer(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> Any:
        y = convolve(x, kernel)
        return y, y + bias

    arrays = operands((_X, _KERNEL, (24,)))
    assert count_biases(layer, *arrays) == 0
    assert_same(layer, *arrays)


def test_a_sum_that_the_kernels_gradient_depends_on_stays() -> None:
    def gradients(x: jax.Array, kernel: jax.Array, out: jax.Array) -> Any:
        bias = out.sum((0, 1, 2))
        _, transpose = jax.vjp(lambda k: convolve(x + bias[0], k), kernel)
        return transpose(out), bias

    arrays = operands((_X, _KERNEL, (*_X[:3], 24)))
    assert count_biases(gradients, *arrays) == 0
    assert_same(gradients, *arrays)


_RELUS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "after a bias": (lambda x, k, b: jax.nn.relu(convolve(x, k) + b), (_X, _KERNEL, (24,))),
    "without a bias": (lambda x, k: jax.nn.relu(convolve(x, k)), (_X, _KERNEL)),
    "as a maximum": (lambda x, k, b: jnp.maximum(convolve(x, k) + b, 0), (_X, _KERNEL, (24,))),
    "strides": (lambda x, k: jax.nn.relu(convolve(x, k, strides=2)), ((16, 21, 21, 32), _KERNEL)),
    "channels second": (lambda x, k: jax.nn.relu(convolve(x, k, layout="NCHW")), ((16, 32, 20, 20), _KERNEL)),
    "groups": (lambda x, k: jax.nn.relu(convolve(x, k, groups=4)), (_X, (3, 3, 8, 32))),
    "lines": (lambda x, k, b: jax.nn.relu(convolve(x, k, layout="NWC") + b), ((32, 200, 32), (5, 32, 64), (64,))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _RELUS)
def test_a_relu_and_its_gradients_are_xlas(name: str) -> None:
    layer, shapes = _RELUS[name]
    arrays = operands(shapes)
    assert count_relus(layer, *arrays) == 1
    assert_same(layer, *arrays)
    assert_same(differentiate(layer), *arrays)


@pytest.mark.slow
def test_relus_gradients_need_its_result_alone() -> None:
    def layer(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.relu(convolve(x, kernel) + bias)

    assert count_relus(differentiate(layer), *operands((_X, _KERNEL, (24,)))) == 1


_IMAGE, _PLACES = (16, 28, 28, 1), (3, 3, 1, 32)
_SUMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "a bias": (lambda x, k, b: convolve(x, k) + b, (_IMAGE, _PLACES, (32,))),
    "a relu": (lambda x, k: jax.nn.relu(convolve(x, k)), (_IMAGE, _PLACES)),
    "both": (lambda x, k, b: jax.nn.relu(convolve(x, k) + b), (_IMAGE, _PLACES, (32,))),
    "flattened": (lambda x, k, b: jax.nn.relu(convolve(x, k) + b).reshape(16, -1), (_IMAGE, _PLACES, (32,))),
    "strides": (lambda x, k, b: jax.nn.relu(convolve(x, k, strides=2) + b), (_IMAGE, _PLACES, (32,))),
    "channels second": (
        lambda x, k, b: jax.nn.relu(convolve(x, k, layout="NCHW") + b.reshape(1, -1, 1, 1)),
        ((16, 1, 28, 28), _PLACES, (32,)),
    ),
    "another activation": (lambda x, k, b: jnp.tanh(convolve(x, k) + b), (_IMAGE, _PLACES, (32,))),
}


@pytest.mark.parametrize("name", slow_but(_SUMS, "both", "channels second"))
def test_a_sum_over_a_kernels_places_has_its_epilogue(name: str) -> None:
    """Compares convolutions of one channel, which are no calls of oneDNN, with XLA's; NaN stays NaN."""
    layer, shapes = _SUMS[name]
    first, *others = operands(shapes)
    first.reshape(-1)[100] = np.nan
    program = lowered(layer, first, *others, ours=True).as_text()
    assert "lockstep_onednn" not in program
    # What follows the branch that XLA computes by itself adds nothing and compares nothing.
    _, _, following = program.rpartition("stablehlo.case")[2].rpartition("}) : ")
    assert following
    assert not re.search("stablehlo.(add|maximum)", following)
    assert_same(layer, first, *others)
    assert_same(differentiate(layer), *operands(shapes))


_OTHER_ACTIVATIONS: dict[str, Callable[[jax.Array], Any]] = {
    "a leaky relu": jax.nn.leaky_relu,
    "another limit": lambda y: jnp.maximum(y, 0.5),
    "a minimum": lambda y: jnp.minimum(y, 0),
    "a relu of a sum": lambda y: jax.nn.relu(y + y.mean()),
    "a value that is needed": lambda y: (y, jax.nn.relu(y)),
    "another comparison": lambda y: (jax.nn.relu(y), jnp.where(y > 1, y, 0)),
    "a comparison with another value": lambda y: (jax.nn.relu(y), jnp.where(y > y.mean(), y, 0)),
}


@pytest.mark.parametrize("name", _OTHER_ACTIVATIONS)
def test_other_activations_are_left_to_xla(name: str) -> None:
    activation = _OTHER_ACTIVATIONS[name]

    def layer(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> Any:
        return activation(convolve(x, kernel) + bias)

    arrays = operands((_X, _KERNEL, (24,)))
    assert count_relus(layer, *arrays) == 0
    assert_same(layer, *arrays)


def test_a_relu_leaves_nan_and_infinity_as_they_are() -> None:
    def layer(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.nn.relu(convolve(x, kernel))

    x, kernel = (np.asarray(a).copy() for a in operands((_X, _KERNEL)))
    x[1, 2, 3, 4], x[2, 3, 4, 5] = np.nan, np.inf
    kernel[..., 5, :] = abs(kernel[..., 5, :])
    assert count_relus(layer, x, kernel) == 1
    expected, received = (
        np.asarray(lowered(layer, x, kernel, ours=ours).compile()(x, kernel)) for ours in (False, True)
    )
    assert np.isnan(expected).sum() > 0 < np.isinf(expected).sum()
    assert np.array_equal(np.isnan(expected), np.isnan(received))
    assert np.array_equal(np.isinf(expected), np.isinf(received))
