"""Memory that calls need while they run: buffers that are lent and given back."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

# Of a cache line, which oneDNN's kernels are fastest from.
ALIGNMENT = 64


class Arena:
    """Keeps as many buffers as calls run at once, each as large as the largest call that has used it."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, size: int) -> Generator[int]:
        """Lends `size` bytes; yields their address."""
        if size == 0:
            yield 0
            return
        with self._lock:
            buffer = self._free.pop() if self._free else None
        if buffer is None or buffer.size < size + ALIGNMENT:
            # Of no value until it is written: the system gives pages as they are touched.
            buffer = np.empty(size + ALIGNMENT, np.uint8)
        address = buffer.ctypes.data
        try:
            yield address + -address % ALIGNMENT
        finally:
            with self._lock:
                self._free.append(buffer)


def round_up(size: int) -> int:
    """Returns a size with which what follows is aligned as well."""
    return size + -size % ALIGNMENT
