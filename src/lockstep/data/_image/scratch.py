"""Memory that each thread uses again: fresh memory costs more than the arithmetic, as each page is cleared first."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

_KEPT = 1 << 26  # bytes, beyond which memory is not kept
_Array = np.ndarray[Any, np.dtype[Any]]
_local = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
    """Returns memory of this thread, whose content lasts until the thread asks for that name again."""
    size = math.prod(shape) * dtype.itemsize
    memory: _Array | None = getattr(_local, name, None)
    # It grows to the largest image that the thread has seen.
    if memory is None or memory.size < size:
        memory = np.empty(size, np.uint8)
        if size <= _KEPT:
            setattr(_local, name, memory)
    return memory[:size].view(dtype).reshape(shape)
