"""Memory that calls need while they run: buffers that are lent and given back."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

from lockstep._engine.runtime.buffers import aligned_empty


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
        if buffer is None or buffer.size < size:
            # Of no value until it is written: the system gives pages as they are touched.
            buffer = aligned_empty((size,), np.dtype(np.uint8))
        try:
            yield buffer.ctypes.data
        finally:
            with self._lock:
                self._free.append(buffer)
