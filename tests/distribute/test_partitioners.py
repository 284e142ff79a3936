"""Partitioners against TensorFlow 2.15.1, whose results are kept here."""

from __future__ import annotations

import pytest

import lockstep as ls
from lockstep.distribute.experimental import partitioners

# (shape, dtype, axis) of each column of _PARTS.
_CASES = [
    ((1,), "float32", 0),
    ((7,), "float32", 0),
    *(((13, 4), dtype, axis) for dtype in ("float32", "float64", "bfloat16", "string") for axis in (0, 1)),
    ((1000,), "float32", 0),
    *(((1024, 1024), dtype, 0) for dtype in ("float32", "float64", "bfloat16", "string")),
    ((1_000_000, 16), "float32", 0),
    ((3, 1), "float32", 0),
    *(((6, 1), dtype, 0) for dtype in ("float32", "float64", "bfloat16", "string")),
    ((50_000_000, 16), "float32", 0),
    ((5, 300_000), "float32", 0),
    *(((2, 3, 4), "float32", axis) for axis in (0, 1, 2)),
]
# What TensorFlow's partitioner of this name and these arguments answers for the axis; for all others it is 1.
# fmt: off
_PARTS = {
    ("FixedShardsPartitioner", (1,)): "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ("FixedShardsPartitioner", (2,)): "1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ("FixedShardsPartitioner", (5,)): "1 5 5 4 5 4 5 4 5 4 5 5 5 5 5 5 3 5 5 5 5 5 5 2 3 4",
    ("MinSizePartitioner", ()): "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ("MinSizePartitioner", (4, 2)): "1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ("MinSizePartitioner", (4, 10)): "1 7 10 4 10 4 10 4 10 4 10 10 10 10 10 10 3 6 6 3 6 10 5 2 3 4",
    ("MinSizePartitioner", (262144, 3)): "1 1 1 1 1 1 1 1 1 1 1 3 3 3 3 3 1 1 1 1 1 3 3 1 1 1",
    ("MinSizePartitioner", (1048576, 100)): "1 1 1 1 1 1 1 1 1 1 1 4 8 2 16 62 1 1 1 1 1 100 5 1 1 1",
    ("MinSizePartitioner", (1000, 7)): "1 1 1 1 1 1 1 1 1 1 4 7 7 7 7 7 1 1 1 1 1 7 5 1 1 1",
    ("MinSizePartitioner", (3, 4, 5)): "1 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 3 4 4 4 4 4 4 2 3 4",
    ("MaxSizePartitioner", (4,)):
        "1 7 13 4 13 4 13 4 13 4 1000 1024 1024 1024 1024 1000000 3 6 6 3 6 50000000 5 2 3 4",
    ("MaxSizePartitioner", (4, 2)): "1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
    ("MaxSizePartitioner", (1024,)): "1 1 1 1 1 1 1 1 1 1 4 1024 1024 1024 1024 62500 1 1 1 1 1 3125000 5 1 1 1",
    ("MaxSizePartitioner", (1048576,)): "1 1 1 1 1 1 1 1 1 1 1 4 8 2 16 62 1 1 1 1 1 3052 5 1 1 1",
    ("MaxSizePartitioner", (67108864,)): "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 48 1 1 1 1",
    ("MaxSizePartitioner", (1048576, 3)): "1 1 1 1 1 1 1 1 1 1 1 3 3 2 3 3 1 1 1 1 1 3 3 1 1 1",
    ("MaxSizePartitioner", (7, 0)):
        "1 7 13 4 13 4 13 4 13 4 1000 1024 1024 1024 1024 1000000 3 6 6 2 6 50000000 5 2 3 4",
    ("MaxSizePartitioner", (100, 5, 3)): "1 1 3 4 5 4 2 2 2 2 5 5 5 5 5 5 1 1 1 1 1 5 5 1 1 1",
}
# fmt: on


@pytest.mark.parametrize(("name", "arguments"), list(_PARTS))
def test_parts_are_those_of_tensorflow(name: str, arguments: tuple[int, ...]) -> None:
    partitioner = getattr(partitioners, name)(*arguments)
    for (shape, dtype, axis), expected in zip(_CASES, _PARTS[name, arguments].split(), strict=True):
        parts = [1] * len(shape)
        parts[axis] = int(expected)
        assert partitioner(shape, dtype, axis=axis) == parts, (shape, dtype, axis)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: partitioners.MinSizePartitioner(min_shard_bytes=0), "`min_shard_bytes` must be positive"),
        (lambda: partitioners.MinSizePartitioner(max_shards=0), "`max_shards` must be positive"),
        (lambda: partitioners.MinSizePartitioner(bytes_per_string=-1), "`bytes_per_string` must be positive"),
        (lambda: partitioners.MaxSizePartitioner(0), "`max_shard_bytes` must be positive"),
        (lambda: partitioners.MaxSizePartitioner(1, -1), "`max_shards` must be positive"),
        (lambda: partitioners.MaxSizePartitioner(1)((0, 4), "float32"), "without elements"),
        (lambda: partitioners.MinSizePartitioner()((), "float32"), "has 0 axes"),
        (lambda: partitioners.FixedShardsPartitioner(2)((3,), "float32", axis=1), "has 1 axes"),
        (lambda: partitioners.Partitioner()((3,), "float32"), "must override __call__"),
    ],
)
def test_wrong_arguments_are_refused_by_name(make, message: str) -> None:
    # TensorFlow's errors are ValueErrors, too.
    with pytest.raises(ls.errors.ArgumentError, match=message) as caught:
        make()
    assert isinstance(caught.value, ValueError)


def test_strings_of_numpy_count_as_tensorflows() -> None:
    partitioner = partitioners.MinSizePartitioner(min_shard_bytes=4, max_shards=10, bytes_per_string=2)
    assert partitioner((6,), object) == partitioner((6,), "string") == [3]
