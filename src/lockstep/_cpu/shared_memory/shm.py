"""Shared memory segments: one process writes them, and the others read them.

It has no name in any directory: it is handed over an open socket, and goes when the last process that maps it does.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# A process writes its next contribution while others may read its last three: it has received the chunk before the last
# from all, which they send when they have read the chunk two before that one.
_CONTRIBUTIONS = 4
# One more for the shards of a scattered sum.
_AREAS = _CONTRIBUTIONS + 1
_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL")


def is_supported() -> bool:
    """Returns whether this platform has such memory."""
    return hasattr(os, "memfd_create") and all(hasattr(fcntl, name) for name in ("F_ADD_SEALS", *_SEALS))


def create(capacity: int) -> int:
    """Returns a descriptor of memory for chunks of `capacity` bytes; its size can no longer change."""
    descriptor = os.memfd_create("lockstep", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Where there is too little of it, this fails; touching it later would end the process.
        os.posix_fallocate(descriptor, 0, capacity * _AREAS)
        # A process that shortened it would end all others that touch what is missing.
        seals = sum(getattr(fcntl, name) for name in _SEALS)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Segment:
    """The memory of a process: its contributions to a few chunks, and its shard of the sums of one.

    Args:
        descriptor: From `create`; it is closed.
        capacity: Bytes of a chunk.
        writable: Whether it is this process' own.
    """

    def __init__(self, descriptor: int, capacity: int, writable: bool) -> None:
        try:
            if os.fstat(descriptor).st_size != capacity * _AREAS:
                raise ValueError("the memory of another task has another size")
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            whole = np.frombuffer(mmap.mmap(descriptor, capacity * _AREAS, access=access), np.uint8)
        finally:
            os.close(descriptor)
        self._areas = [whole[i * capacity : (i + 1) * capacity] for i in range(_AREAS)]

    def contribution(self, number: int, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Returns elements of what the process adds in chunk `number`."""
        return self._areas[number % _CONTRIBUTIONS][offset : offset + count * dtype.itemsize].view(dtype)

    def sums(self, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Returns elements of the shard that the process has reduced for all."""
        return self._areas[_CONTRIBUTIONS][offset : offset + count * dtype.itemsize].view(dtype)
