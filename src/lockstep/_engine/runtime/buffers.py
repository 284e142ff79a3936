"""Memory for arrays that XLA takes as they are: it copies what does not begin at a multiple of 64 bytes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from lockstep._types import Array

# XLA's buffers on the CPU, and lines of its caches.
ALIGNMENT = 64


def align_size(count: int) -> int:
    """Returns a number of bytes rounded up to the alignment."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Returns an array that begins at a multiple of the alignment; its values are anything."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Returns an array of zeros that begins at a multiple of the alignment."""
    array = aligned_empty(shape, dtype)
    array.fill(0)
    return array


class Scratch:
    """Arrays that are used again and again, for one thread at a time."""

    def __init__(self) -> None:
        self._arrays: dict[Hashable, Array] = {}

    def array(self, use: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Returns the array of this use and shape, with what was written to it last; zeros at first."""
        key = use, shape
        if key not in self._arrays:
            self._arrays[key] = aligned_zeros(shape, dtype)
        return self._arrays[key]
