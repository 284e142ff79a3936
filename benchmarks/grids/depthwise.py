"""Depthwise convolutions: the layers of MobileNets and ConvNeXt, multipliers, other ranks, layouts and types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax.numpy as jnp

from benchmarks.grids.case import Case
from benchmarks.grids.convolutions import Layer, operations


def depthwise_cases() -> Iterator[Case]:
    """Yields the forward pass and both gradients of every layer."""
    quick = {str(_layer(4, 28, 64)), str(_layer(4, 56, 32, stride=2))}
    for layer in (*_networks(), *_others()):
        yield from operations(layer, str(layer) in quick)


def _layer(batch: int, size: int, channels: int, taps: int = 3, multiplier: int = 1, stride: int = 1) -> Layer:
    return Layer(batch, size, channels, channels * multiplier, taps, stride, groups=channels)


def _networks() -> Iterator[Layer]:
    for size, channels in ((112, 32), (56, 144), (28, 192), (14, 384), (7, 960)):
        yield _layer(4, size, channels)
        if size > 7:
            yield _layer(4, size, channels, stride=2)
    yield _layer(4, 14, 384, taps=5)
    yield _layer(4, 14, 96, taps=7)
    for size, channels, taps in ((16, 96, 9), (28, 64, 9), (8, 64, 9), (14, 48, 11), (32, 32, 13), (24, 32, 31)):
        yield _layer(4, size, channels, taps=taps)
    yield _layer(4, 28, 64, taps=9, stride=2)
    yield _layer(4, 28, 64, taps=9, multiplier=2)
    yield replace(_layer(4, 28, 64, taps=9), dtype=jnp.bfloat16)
    yield replace(_layer(4, 28, 64, taps=9), dilation=2)
    yield replace(_layer(8, 256, 64, taps=70), rank=1)
    for batch, size, channels, taps in ((16, 100, 128, 33), (16, 100, 128, 15), (8, 200, 32, 3), (32, 64, 256, 9)):
        yield replace(_layer(batch, size, channels, taps=taps), rank=1)
    yield replace(_layer(16, 7, 512, taps=7), padding="VALID")
    yield replace(_layer(16, 16, 32, taps=16, multiplier=2), padding="VALID")
    for batch in (1, 32, 128):
        yield _layer(batch, 14, 64)


def _others() -> Iterator[Layer]:
    yield _layer(4, 28, 64)
    yield _layer(4, 56, 32, stride=2)
    yield _layer(16, 8, 16)
    yield _layer(4, 28, 32, multiplier=2)
    yield _layer(16, 32, 3, multiplier=4)
    yield _layer(16, 48, 3, taps=5, multiplier=8)
    yield _layer(8, 96, 4, multiplier=2)
    yield replace(_layer(4, 28, 64), padding="VALID")
    yield replace(_layer(4, 28, 64), dilation=2)
    yield replace(_layer(16, 256, 64, taps=5), rank=1)
    yield replace(_layer(16, 256, 64), rank=1, stride=2)
    yield replace(_layer(2, 12, 32), rank=3)
    yield replace(_layer(4, 28, 64), channels_last=False)
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float64):
        yield replace(_layer(4, 28, 64), dtype=dtype)
