"""Small stand-ins for MNIST, in each of the places where it is looked for."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

Bytes = NDArray[np.uint8]


def idx(array: Bytes) -> bytes:
    """The content of an IDX file of unsigned bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def digits() -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Arrays of MNIST's shapes: 12 training and 5 test examples."""
    rng = np.random.default_rng(0)

    def split(count: int) -> tuple[Bytes, Bytes]:
        return rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)

    return *split(12), *split(5)


def write_idx(directory: Path, compressed: bool = False) -> Path:
    """Writes `digits` as four IDX files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, array in zip(NAMES, digits(), strict=True):
        content = gzip.compress(idx(array)) if compressed else idx(array)
        (directory / (f"{name}.gz" if compressed else name)).write_bytes(content)
    return directory


def npz() -> bytes:
    """`digits` as the file that Keras publishes."""
    file = io.BytesIO()
    np.savez(file, **dict(zip(("x_train", "y_train", "x_test", "y_test"), digits(), strict=True)))
    return file.getvalue()
