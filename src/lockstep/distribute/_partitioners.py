"""Partitioners: into how many ranges a variable is divided for parameter servers.

Source: tf.distribute.experimental.partitioners, tensorflow/python/distribute/sharded_variable.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes as ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from lockstep.errors import ArgumentError

__all__ = ["FixedShardsPartitioner", "MaxSizePartitioner", "MinSizePartitioner", "Partitioner"]


class Partitioner:
    """Base class of partitioners: a subclass overrides `__call__`.

    Source: tf.distribute.experimental.partitioners.Partitioner.
    """

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis of a variable.

        Args:
            shape: Shape of the variable.
            dtype: Dtype of its elements.
            axis: Axis along which it is divided. Default: 0, the only one that ParameterServerStrategy divides.

        Returns:
            A list as long as `shape`, with 1 for an axis that stays whole.

        Raises:
            ArgumentError: If the subclass does not override it.
        """
        raise ArgumentError(
            f"A subclass of Partitioner must override __call__(shape, dtype, axis=0). Received: {type(self).__name__}, "
            "which does not. Return the number of parts along each axis."
        )


class FixedShardsPartitioner(Partitioner):
    """Partitioner into a fixed number of shards, or as many as the axis is long if that is less.

    Args:
        num_shards: Number of shards.

    Source: tf.distribute.experimental.partitioners.FixedShardsPartitioner.
    """

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis; `dtype` does not matter."""
        return _parts(shape, axis, min(self._num_shards, _length(shape, axis)))


class MinSizePartitioner(Partitioner):
    """Partitioner into as many shards as possible of at least `min_shard_bytes` each.

    As in TensorFlow the number of shards is rounded up, so that shards may be somewhat smaller than that.

    Args:
        min_shard_bytes: Minimum bytes of a shard. Default: 256 KiB.
        max_shards: Maximum number of shards. Default: 1, which divides nothing.
        bytes_per_string: Bytes that count for an element of a string dtype.

    Raises:
        ArgumentError: If a value is below 1.

    Source: tf.distribute.experimental.partitioners.MinSizePartitioner.
    """

    def __init__(self, min_shard_bytes: int = 256 << 10, max_shards: int = 1, bytes_per_string: int = 16) -> None:
        self._min_shard_bytes = _positive("min_shard_bytes", min_shard_bytes)
        self._max_shards = _positive("max_shards", max_shards)
        self._bytes_per_string = _positive("bytes_per_string", bytes_per_string)

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis."""
        size = math.prod(shape) * _itemsize(dtype, self._bytes_per_string)
        shards = math.ceil(size / self._min_shard_bytes)
        return _parts(shape, axis, max(1, min(_length(shape, axis), self._max_shards, shards)))


class MaxSizePartitioner(Partitioner):
    """Partitioner into as few shards as possible of at most `max_shard_bytes` each.

    A slice of the axis is never divided: a shard of one slice may be larger.

    Args:
        max_shard_bytes: Maximum bytes of a shard.
        max_shards: Maximum number of shards, which comes before the maximum of bytes. Default: None, no maximum.
        bytes_per_string: Bytes that count for an element of a string dtype.

    Raises:
        ArgumentError: If a value is below 1.

    Source: tf.distribute.experimental.partitioners.MaxSizePartitioner.
    """

    def __init__(self, max_shard_bytes: int, max_shards: int | None = None, bytes_per_string: int = 16) -> None:
        self._max_shard_bytes = _positive("max_shard_bytes", max_shard_bytes)
        # TensorFlow takes 0 for `None`.
        self._max_shards = _positive("max_shards", max_shards) if max_shards else None
        self._bytes_per_string = _positive("bytes_per_string", bytes_per_string)

    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """Returns the number of parts along each axis."""
        length = _length(shape, axis)
        if not math.prod(shape):
            raise ArgumentError(
                f"A variable without elements cannot be divided by bytes. Received: shape {tuple(shape)}. Leave it out."
            )
        slice_bytes = math.prod(shape) / length * _itemsize(dtype, self._bytes_per_string)
        slices = max(1, math.floor(self._max_shard_bytes / slice_bytes))
        shards = math.ceil(length / slices)
        return _parts(shape, axis, shards if self._max_shards is None else min(self._max_shards, shards))


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ArgumentError(f"Argument `{name}` must be positive. Received: {value}. Pass at least 1.")
    return value


def _length(shape: Sequence[int], axis: int) -> int:
    if not -len(shape) <= axis < len(shape):
        raise ArgumentError(
            f"Cannot partition a variable along axis {axis} of shape {tuple(shape)}: it has {len(shape)} axes. Choose "
            "another axis, or leave the variable whole: return 1 for each axis."
        )
    return shape[axis]


def _parts(shape: Sequence[int], axis: int, shards: int) -> list[int]:
    parts = [1] * len(shape)
    parts[axis] = shards
    return parts


def _itemsize(dtype: DTypeLike, bytes_per_string: int) -> int:
    # NumPy does not know TensorFlow's and Keras' name of strings; with ml_dtypes it knows bfloat16 and 8-bit floats.
    if getattr(dtype, "name", dtype) == "string":
        return bytes_per_string
    kind = np.dtype(dtype)
    return bytes_per_string if kind.kind in "OSUT" else kind.itemsize
