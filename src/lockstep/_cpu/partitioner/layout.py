"""How a value lies on the replicas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class NoRule(Exception):
    """A step, or a part of it, cannot be divided soundly; the message says why. Never leaves the package."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How a value of the global batch's program lies on the replicas.

    There is one of each kind, so they are compared by identity: `REPLICATED`, `PARTIAL`, and what `sharded` returns.

    Attributes:
        axis: Along which axis of the array it is divided; negative if it is not.
    """

    axis: int

    @property
    def is_sharded(self) -> bool:
        """Whether each replica holds a block of the value."""
        return self.axis >= 0


REPLICATED = Layout(-1)
"""Each replica holds all of it."""

PARTIAL = Layout(-2)
"""Each replica holds a summand of it."""

_SHARDED = tuple(Layout(axis) for axis in range(16))


def sharded(axis: int) -> Layout:
    """The value is divided along `axis` into equal blocks, in the order of the replicas."""
    if not 0 <= axis < len(_SHARDED):
        raise NoRule(f"axis {axis} of an array is out of reach")
    return _SHARDED[axis]


def local_shape(shape: Sequence[int], axis: int, count: int) -> tuple[int, ...]:
    """The shape of one of `count` blocks along `axis`.

    Raises:
        NoRule: If the axis cannot be divided.
    """
    if shape[axis] % count:
        raise NoRule(f"axis {axis} of {tuple(shape)} does not divide by {count}")
    return (*shape[:axis], shape[axis] // count, *shape[axis + 1 :])


def size_of(aval: Any) -> int:
    """Bytes of a whole value."""
    return math.prod(aval.shape) * aval.dtype.itemsize
