"""The kernels that images are sampled with.

Source: tensorflow/core/kernels/image/sampling_kernels.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Kernel:
    """A weight for each distance.

    Attributes:
        radius: From where on it is zero, in pixels.
        weight: Weights of distances, which are not negative.
    """

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
