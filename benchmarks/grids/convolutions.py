"""Convolutions that are not depthwise: images with few channels, residual networks, 1x1, other ranks and types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.grids.case import Case


@dataclass(frozen=True)
class Layer:
    """A convolution. Kernels and images are as large along each of their dimensions."""

    batch: int
    size: int
    inputs: int
    outputs: int
    taps: int
    stride: int = 1
    padding: str = "SAME"
    dilation: int = 1
    groups: int = 1
    rank: int = 2
    channels_last: bool = True
    dtype: Any = jnp.float32

    def numbers(self) -> tuple[str, str, str]:
        """The layouts of image, kernel and result, as jax names them."""
        space = "DHW"[3 - self.rank :]
        layout = f"N{space}C" if self.channels_last else f"NC{space}"
        return layout, f"{space}IO", layout

    def apply(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        """Convolves."""
        strides, dilation = (self.stride,) * self.rank, (self.dilation,) * self.rank
        return lax.conv_general_dilated(
            x,
            kernel,
            strides,
            self.padding,
            rhs_dilation=dilation,
            dimension_numbers=self.numbers(),
            feature_group_count=self.groups,
        )

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the image and the kernel."""
        space = (self.size,) * self.rank
        x = (self.batch, *space, self.inputs) if self.channels_last else (self.batch, self.inputs, *space)
        return x, (*(self.taps,) * self.rank, self.inputs // self.groups, self.outputs)

    def __str__(self) -> str:
        taps = "x".join([str(self.taps)] * self.rank)
        extras = [self.padding.lower(), "" if self.channels_last else "channels first"]
        extras += [f"stride {self.stride}"] * (self.stride > 1) + [f"dilation {self.dilation}"] * (self.dilation > 1)
        extras += [f"{self.groups} groups"] * (self.groups > 1) + [jnp.dtype(self.dtype).name]
        space = "x".join([str(self.size)] * self.rank)
        return f"{self.batch}x{space}x{self.inputs} {taps} -> {self.outputs} {' '.join(e for e in extras if e)}"


def convolution_cases() -> Iterator[Case]:
    """Yields the forward pass and both gradients of every layer of the grid."""
    quick = set(map(str, _QUICK))
    for layer in (
        *_QUICK,
        *_few_channels(),
        *_small_pictures(),
        *_large_kernels(),
        *_grouped(),
        *_ordinary(),
        *_others(),
    ):
        yield from operations(layer, str(layer) in quick)


_QUICK = (
    Layer(64, 28, 1, 32, 3, padding="VALID"),
    Layer(32, 32, 3, 32, 3),
    Layer(64, 13, 32, 64, 3, padding="VALID"),
    Layer(8, 28, 64, 128, 1),
    Layer(4, 28, 64, 64, 3),
)


def _few_channels() -> Iterator[Layer]:
    for outputs in (6, 16, 32, 64):
        yield Layer(64, 28, 1, outputs, 3)
        yield Layer(64, 28, 1, outputs, 5, padding="VALID")
        yield Layer(32, 32, 3, outputs, 3)
        yield Layer(8, 64, 4, outputs, 3, stride=2)
    yield from (Layer(32, 32, 3, 64, 5), Layer(4, 112, 3, 32, 3, stride=2), Layer(2, 112, 3, 64, 7, stride=2))
    for batch in (1, 8, 128):
        yield Layer(batch, 28, 1, 32, 3)
        yield Layer(batch, 32, 3, 32, 3)


def _small_pictures() -> Iterator[Layer]:
    """Yields layers whose kernel is larger than the picture, and their neighbours, whose kernel is not."""
    for size in (1, 2, 3, 4):
        for channels in (16, 64, 256):
            yield Layer(32, size, channels, channels, 3)
            yield Layer(32, size, channels, 2 * channels, 3, stride=2)
        yield Layer(8, size, 64, 64, 5)
        yield Layer(8, size, 64, 64, 3, dilation=2)
    yield from (Layer(32, 2, 512, 512, 3), Layer(1, 2, 512, 512, 3), Layer(2, 2, 8, 8, 3), Layer(32, 2, 3, 64, 3))
    yield Layer(32, 2, 128, 128, 3, rank=1)
    yield Layer(4, 2, 64, 64, 3, rank=3)
    yield Layer(32, 2, 128, 128, 3, channels_last=False)
    for dtype in (jnp.bfloat16, jnp.float64):
        yield Layer(32, 2, 128, 128, 3, dtype=dtype)


def _large_kernels() -> Iterator[Layer]:
    """Yields layers whose kernel has more elements than the pictures, and their neighbours, whose kernel has not."""
    for batch, size in ((1, 8), (4, 4), (16, 3), (8, 7), (32, 4), (8, 14)):
        yield Layer(batch, size, 512, 512, 3)
    for batch, size in ((4, 4), (16, 6), (16, 8), (8, 14)):
        yield Layer(batch, size, 256, 256, 3)
    yield from (Layer(8, 6, 256, 512, 3), Layer(8, 8, 384, 384, 3), Layer(8, 5, 1024, 1024, 3))
    yield from (Layer(16, 6, 256, 512, 3, stride=2), Layer(8, 40, 256, 256, 5, rank=1))
    # More places than the output has.
    yield Layer(16, 20, 64, 64, 9, stride=2, padding="VALID")
    yield Layer(32, 6, 128, 128, 5, stride=2)
    yield Layer(8, 14, 64, 64, 9, stride=2)
    yield Layer(16, 8, 32, 64, 5, stride=2)
    yield Layer(16, 10, 96, 96, 7, stride=2)
    yield Layer(4, 12, 128, 128, 7, padding="VALID")
    yield Layer(32, 8, 64, 64, 5, padding="VALID")
    yield Layer(4, 9, 64, 64, 5, padding="VALID", rank=3)


def _grouped() -> Iterator[Layer]:
    for groups in (2, 8, 32, 64):
        for size, channels in ((28, 64), (14, 256), (7, 512)):
            yield Layer(8, size, channels, channels, 3, groups=groups)
            yield Layer(8, size, channels, channels, 3, stride=2, groups=groups)
    for channels in (60, 240):
        yield Layer(16, 14, channels, channels, 1, groups=3)
    yield Layer(64, 32, 64, 64, 3, groups=8)
    yield Layer(2, 7, 16, 16, 3, groups=2)
    yield Layer(32, 64, 32, 32, 3, groups=4, rank=1)
    for dtype in (jnp.bfloat16, jnp.float64):
        yield Layer(8, 14, 64, 64, 3, groups=4, dtype=dtype)


def _ordinary() -> Iterator[Layer]:
    for size, channels in ((56, 32), (28, 128), (14, 256), (7, 256)):
        yield Layer(4, size, channels, channels, 3)
        yield Layer(4, size, channels, channels, 3, stride=2)
        yield Layer(4, size, channels, channels, 1)
        yield Layer(4, size, channels, 2 * channels, 1, stride=2)
    for batch in (1, 32, 128):
        yield Layer(batch, 14, 64, 64, 3)
        yield Layer(batch, 14, 64, 256, 1)
    # About as few products as oneDNN takes.
    for batch, size, channels, outputs in (
        (8, 32, 16, 16),
        (32, 16, 16, 16),
        (1, 64, 16, 16),
        (4, 16, 32, 32),
        (8, 28, 16, 8),
    ):
        yield Layer(batch, size, channels, outputs, 3)
    yield Layer(4, 28, 64, 64, 3, dilation=2)
    yield Layer(4, 28, 64, 64, 3, groups=4)
    yield Layer(64, 14, 16, 32, 5, padding="VALID")
    yield Layer(32, 1, 256, 256, 1)


def _others() -> Iterator[Layer]:
    yield Layer(32, 256, 1, 32, 5, rank=1)
    yield Layer(32, 256, 64, 64, 3, rank=1)
    yield Layer(32, 256, 64, 64, 1, rank=1)
    yield Layer(2, 16, 1, 16, 3, rank=3)
    yield Layer(2, 12, 16, 16, 3, rank=3)
    for layer in (
        Layer(32, 28, 1, 32, 3),
        Layer(8, 32, 3, 32, 3),
        Layer(4, 14, 64, 64, 3),
        Layer(4, 14, 64, 128, 1),
    ):
        yield replace(layer, channels_last=False)
        for dtype in (jnp.bfloat16, jnp.float16, jnp.float64):
            yield replace(layer, dtype=dtype)


def operations(layer: Layer, quick: bool) -> Iterator[Case]:
    """Yields the forward pass and both gradients of a layer."""
    x, kernel = layer.shapes()
    spec = [jax.ShapeDtypeStruct(shape, layer.dtype) for shape in (x, kernel)]
    out = tuple(jax.eval_shape(layer.apply, *spec).shape)
    common = {"dtype": layer.dtype, "quick": quick}

    def of_input(k: jax.Array, g: jax.Array) -> Any:
        (transposed,) = jax.linear_transpose(lambda a: layer.apply(a, k), spec[0])(g)
        return transposed

    def of_kernel(a: jax.Array, g: jax.Array) -> Any:
        (transposed,) = jax.linear_transpose(lambda k: layer.apply(a, k), spec[1])(g)
        return transposed

    yield Case(f"conv {layer} forward", layer.apply, (x, kernel), **common)
    yield Case(f"conv {layer} of input", of_input, (kernel, out), **common)
    yield Case(f"conv {layer} of kernel", of_kernel, (x, out), **common)
