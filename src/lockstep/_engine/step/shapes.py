"""Shapes that should be alike, in words that TensorFlow's users know."""

from __future__ import annotations

from collections.abc import Sequence


def difference(shapes: Sequence[Sequence[int]], axis: int | None = None) -> str:
    """Returns a sentence that says where shapes differ, but for an axis; nothing if they do not."""
    first = shapes[0]
    for other in shapes[1:]:
        if len(other) != len(first):
            return (
                f" Ranks of all input tensors should match: Shape must be rank {len(first)} but is rank {len(other)}."
            )
        for i, (n, m) in enumerate(zip(first, other, strict=True)):
            if n != m and i != axis:
                return f" Dimension {i} in both shapes must be equal, but they are {n} and {m}."
    return ""
