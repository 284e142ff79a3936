"""Biases of convolutions: added to the output, and their gradients beside those of the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case
from benchmarks.grids.convolutions import Layer

_QUICK = Layer(16, 48, 32, 32, 3)


def bias_cases() -> Iterator[Case]:
    """Yields both passes of every layer of the grid."""
    for layer in (_QUICK, *_layers()):
        yield from _operations(layer, layer is _QUICK)


def _layers() -> Iterator[Layer]:
    yield from (Layer(16, 96, 3, 16, 3), Layer(16, 96, 16, 16, 3), Layer(16, 24, 64, 64, 3), Layer(16, 12, 128, 128, 3))
    yield from (
        Layer(8, 180, 16, 32, 3),
        Layer(4, 64, 64, 64, 3),
        Layer(8, 14, 256, 256, 3),
        Layer(2, 112, 3, 64, 7, 2),
    )
    yield from (
        Layer(32, 28, 32, 64, 5, padding="VALID"),
        Layer(32, 28, 64, 64, 3, 2),
        Layer(8, 28, 64, 64, 3, dilation=2),
    )
    yield from (
        Layer(32, 256, 64, 64, 3, rank=1),
        Layer(2, 12, 16, 16, 3, rank=3),
        Layer(4, 14, 64, 64, 3, channels_last=False),
    )
    yield from (Layer(64, 28, 1, 32, 3), Layer(1, 14, 64, 64, 3), replace(_QUICK, dtype=jnp.bfloat16))


def _operations(layer: Layer, quick: bool) -> Iterator[Case]:
    x, kernel = layer.shapes()
    bias = (layer.outputs,)
    shape = (-1,) if layer.channels_last else (-1, *(1,) * layer.rank)

    def forward(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        return jnp.tanh(layer.apply(x, kernel) + bias.reshape(shape))

    def with_relu(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.relu(layer.apply(x, kernel) + bias.reshape(shape))

    spec = [jax.ShapeDtypeStruct(s, layer.dtype) for s in (x, kernel, bias)]
    out = tuple(jax.eval_shape(forward, *spec).shape)

    def backward(x: jax.Array, out: jax.Array) -> Any:
        transpose = jax.linear_transpose(lambda k, b: layer.apply(x, k) + b.reshape(shape), *spec[1:])
        return transpose(out)

    common = {"dtype": layer.dtype, "quick": quick}
    yield Case(f"bias {layer} forward", forward, (x, kernel, bias), **common)
    yield Case(f"bias {layer} forward, relu", with_relu, (x, kernel, bias), **common)
    yield Case(f"bias {layer} of kernel and bias", backward, (x, out), **common)
