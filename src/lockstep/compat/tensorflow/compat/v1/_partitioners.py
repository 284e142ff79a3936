"""Partitioners of TensorFlow 1: into how many ranges of rows parameter servers divide a variable of a model_fn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.distribute.experimental import partitioners

__all__ = ["fixed_size_partitioner", "min_max_variable_partitioner", "variable_axis_size_partitioner"]


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Callable[..., list[int]]:
    """Returns a partitioner into a fixed number of shards. Source: tf.compat.v1.fixed_size_partitioner."""
    made = partitioners.FixedShardsPartitioner(num_shards)

    def parts(shape: Sequence[int], dtype: Any = None) -> list[int]:
        return made(shape, dtype, axis)

    return parts


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10, bytes_per_string_element: int = 16
) -> Callable[..., list[int]]:
    """Returns a partitioner into as many shards as possible of a least size.

    Source: tf.compat.v1.min_max_variable_partitioner.
    """
    made = partitioners.MinSizePartitioner(min_slice_size, max_partitions, bytes_per_string_element)
    return lambda shape, dtype: made(shape, dtype, axis)


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16, max_shards: int | None = None
) -> Callable[..., list[int]]:
    """Returns a partitioner into as few shards as possible of a greatest size.

    Source: tf.compat.v1.variable_axis_size_partitioner.
    """
    made = partitioners.MaxSizePartitioner(max_shard_bytes, max_shards, bytes_per_string_element)
    return lambda shape, dtype: made(shape, dtype, axis)


def with_types(partitioner: Any) -> Callable[[Sequence[int], str], Sequence[int]]:
    """Returns a program's partitioner as a function of a plain shape and the name of a dtype."""
    return lambda shape, dtype: partitioner(shape=TensorShape(shape), dtype=as_dtype(dtype))
