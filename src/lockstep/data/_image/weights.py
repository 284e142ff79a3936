"""Weights of the input pixels of each output pixel, along one dimension.

All methods are separable: the same is done along the height and along the width.

Source: tensorflow/core/kernels/image: resize_bilinear_op, resize_nearest_neighbor_op, resize_bicubic_op,
resize_area_op (half-pixel centres) and scale_and_translate_op, whose arithmetic in float32 is followed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[Any]]
_F32 = np.float32
_TABLE = 1024  # resize_bicubic_op rounds distances to this part of a pixel
_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Kernel:
    """The weight of each distance, which is not negative; zero from `radius` pixels on."""

    radius: float
    weight: Callable[[Floats], Floats]


def _triangle(x: Floats) -> Floats:
    return np.maximum(1 - x, 0)


def _keys_cubic(x: Floats) -> Floats:
    near = ((1.5 * x - 2.5) * x) * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x >= 2, 0, np.where(x >= 1, far, near))


def _mitchell_cubic(x: Floats) -> Floats:
    near = ((7 / 6 * x - 2) * x) * x + 8 / 9
    far = ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x >= 2, 0, np.where(x >= 1, far, near))


def _gaussian(x: Floats) -> Floats:
    return np.where(x >= 1.5, 0, np.exp(-(x**2) / (2 * 0.5**2)))


def _lanczos(radius: float) -> Kernel:
    def weight(x: Floats) -> Floats:
        angle = np.pi * np.maximum(x, 1e-3)
        inside = np.where(x <= 1e-3, 1, radius * np.sin(angle) * np.sin(angle / radius) / angle**2)
        return np.where(x > radius, 0, inside)

    return Kernel(radius, weight)


KERNELS = {
    "bilinear": Kernel(1, _triangle),
    "bicubic": Kernel(2, _keys_cubic),
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
    "gaussian": Kernel(1.5, _gaussian),
    "mitchellcubic": Kernel(2, _mitchell_cubic),
}


@dataclass(frozen=True, eq=False)
class Taps:
    """The input pixels, and their weights, of each output pixel.

    Attributes:
        index: int64 (taps, out): which.
        weight: float32 (taps, out).
    """

    index: _Array
    weight: _Array

    def of_elements(self, channels: int) -> Taps:
        """Returns the taps for rows of pixels whose channels lie next to each other.

        Elements are gathered, not pixels: numpy gathers items of 4 bytes faster than those of 12.
        """
        return _element_taps(self, channels)

    @cached_property
    def in_order(self) -> tuple[_Array, _Array]:
        """Returns the indices (out * taps,) and weights (out, 1, taps), the taps of a pixel next to each other."""
        return np.ascontiguousarray(self.index.T).reshape(-1), np.ascontiguousarray(self.weight.T)[:, None]

    def matrix(self, size: int) -> _Array:
        """Returns the same as a float32 matrix (out, size)."""
        # np.add.at, because a clipped tap may name the same pixel twice.
        dense = np.zeros((self.index.shape[1], size), _F32)
        for index, weight in zip(self.index, self.weight, strict=True):
            np.add.at(dense, (np.arange(len(index)), index), weight)
        return dense


@lru_cache(maxsize=1024)
def _element_taps(pixels: Taps, channels: int) -> Taps:
    index = pixels.index[..., None] * channels + np.arange(channels)
    return Taps(index.reshape(len(index), -1), np.repeat(pixels.weight, channels, axis=1))


@lru_cache(maxsize=1024)
def taps(method: str, antialias: bool, size: int, new_size: int) -> Taps:
    """Returns the taps for resizing one dimension from `size` to `new_size`."""
    if method == "nearest":
        result = _nearest(size, new_size)
    elif method == "area":
        result = _area(size, new_size)
    elif method == "bilinear" and not antialias:
        result = _bilinear(size, new_size)
    elif method == "bicubic" and not antialias:
        result = _bicubic(size, new_size)
    else:
        result = _sample(method, antialias, size, new_size)
    # Cached, and so shared by all callers.
    result.index.flags.writeable = result.weight.flags.writeable = False
    return result


def _centres(size: int, new_size: int) -> _Array:
    """Returns where the centres of the new pixels lie in the old ones, counted in pixels from the first one's edge."""
    return (np.arange(new_size, dtype=_F32) + _F32(0.5)) * (_F32(size) / _F32(new_size))


def _nearest(size: int, new_size: int) -> Taps:
    index = np.minimum(np.floor(_centres(size, new_size)).astype(np.int64), size - 1)
    return Taps(index[None], np.ones((1, new_size), _F32))


def _bilinear(size: int, new_size: int) -> Taps:
    where = _centres(size, new_size) - _F32(0.5)
    below = np.floor(where)
    share = where - below
    # The edge is repeated outside of the image.
    lower = np.maximum(below, 0).astype(np.int64)
    upper = np.minimum(np.ceil(where), size - 1).astype(np.int64)
    return Taps(np.stack([lower, upper]), np.stack([1 - share, share]))


def _bicubic(size: int, new_size: int) -> Taps:
    where = _centres(size, new_size) - _F32(0.5)
    below = np.floor(where)
    # TensorFlow looks weights up in a table of 1,024 distances: without the rounding pixels differ.
    share = np.rint((where - below) * _TABLE) / _TABLE
    index = below.astype(np.int64) + np.arange(-1, 3)[:, None]
    distance = np.abs(np.arange(-1, 3)[:, None] - share)
    return _normalize(index, KERNELS["bicubic"].weight(distance), size)


def _normalize(index: _Array, weight: _Array, size: int) -> Taps:
    """Gives pixels outside of the image no weight."""
    # TensorFlow gives pixels outside no weight here, instead of repeating the edge.
    weight = np.where((index < 0) | (index >= size), 0, weight).astype(_F32)
    total = weight.sum(axis=0)
    weight = np.where(np.abs(total) >= 1000 * np.finfo(_F32).tiny, weight / np.where(total == 0, 1, total), weight)
    return Taps(np.clip(index, 0, size - 1), weight.astype(_F32))


def _area(size: int, new_size: int) -> Taps:
    scale = _F32(size) / _F32(new_size)
    begin = np.arange(new_size, dtype=_F32) * scale
    end = np.arange(1, new_size + 1, dtype=_F32) * scale
    first = np.floor(begin).astype(np.int64)
    index = first + np.arange(int((np.ceil(end) - first).max()))[:, None]
    covered = np.minimum(index + 1, end) - np.maximum(index, begin)
    weight = np.maximum(covered, 0) / scale
    return Taps(np.clip(index, 0, size - 1), weight.astype(_F32))


def _sample(method: str, antialias: bool, size: int, new_size: int) -> Taps:
    kernel = KERNELS[method]
    inverse = _F32(1) / (_F32(new_size) / _F32(size))
    stretch = max(inverse, _F32(1)) if antialias else _F32(1)
    centre = (np.arange(new_size, dtype=_F32) + _F32(0.5)) * inverse
    reach = _F32(kernel.radius) * stretch
    # In float32, as the kernel does: in float64 some spans would have another end.
    first = np.clip(np.ceil(centre - reach - _F32(0.5)), 0, size - 1).astype(np.int64)
    last = np.clip(np.floor(centre + reach - _F32(0.5)), 0, size - 1).astype(np.int64)
    index = first + np.arange(int((last - first).max()) + 1)[:, None]
    distance = np.abs(index.astype(_F32) + _F32(0.5) - centre) * (_F32(1) / stretch)
    weight = np.where(index > last, 0, kernel.weight(distance))
    return _normalize(index, weight, size)
