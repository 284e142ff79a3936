"""Examples of the shapes that the models take. What they contain does not change speed."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.data import load_digits

Examples = tuple[np.ndarray, np.ndarray]


def flat_digits(directory: str, count: int = 50_000) -> Examples:
    """float32 (count, 784) and int32 (count,)."""
    images, labels = load_digits(directory)
    return images[:count].reshape(count, 784).astype(np.float32) / 255, labels[:count].astype(np.int32)


def square_digits(directory: str) -> Examples:
    """float32 (60000, 28, 28) and int64 (60000,)."""
    images, labels = load_digits(directory)
    return images.astype(np.float32) / 255, labels.astype(np.int64)


def photographs(count: int, side: int = 224, classes: int = 2) -> Examples:
    """float32 (count, side, side, 3) and int32 (count,): noise."""
    random = np.random.default_rng(0)
    return random.random((count, side, side, 3), np.float32), random.integers(0, classes, count, np.int32)


def texts(count: int, length: int) -> Examples:
    """int32 (count, length) tokens and int32 (count,): noise."""
    random = np.random.default_rng(0)
    return random.integers(0, 20_000, (count, length), np.int32), random.integers(0, 2, count, np.int32)
