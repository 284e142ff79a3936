"""Threads that compute the pieces of a call beside the one that XLA calls it in.

Each is bound to a core. Linux puts a thread that it wakes on another core than the waker's only if it knows that one
to be idle, and with few cores it does not look: of two pieces one waited for the other on the same core, in a third of
the calls. A step of a convolutional autoencoder takes 28 ms, not 34, of a U-Net 124, not 142 (2-core EPYC).
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from lockstep._cpu.onednn.pieces import MOST_PIECES
from lockstep._engine.runtime import core_binding

_NAME = "lockstep-onednn"


class Threads:
    """Threads for pieces of calls: one for each core if a core computes a piece, else as many as there are pieces.

    Args:
        cores: The cores that this process may use.
        current_core: Returns the core that the calling thread is on.
    """

    def __init__(self, cores: Sequence[int], current_core: Callable[[], int]) -> None:
        self._current_core = current_core
        self._cores = list(cores) if 1 < len(cores) <= MOST_PIECES else []
        self._bound = [ThreadPoolExecutor(1, _NAME, core_binding.bind_thread, (core,)) for core in self._cores]
        # oneDNN starts threads of its own for a piece of several cores, which would be bound with that of the piece.
        self._free = ThreadPoolExecutor(MOST_PIECES - 1, _NAME)

    def beside_caller(self, count: int) -> Sequence[Executor]:
        """Returns what is to execute `count` pieces while the calling thread computes another one."""
        own = self._current_core()
        if own not in self._cores or count >= len(self._cores):
            return [self._free] * count
        place = self._cores.index(own)
        return [self._bound[(place + i) % len(self._cores)] for i in range(1, count + 1)]


@functools.cache
def threads() -> Threads:
    """Returns the threads of this process."""
    # Python has no function that tells the core. PyDLL: no other thread takes the interpreter during this short call.
    library = ctypes.PyDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "sched_getcpu") or not core_binding.is_enabled():
        return Threads([], lambda: 0)
    return Threads(sorted(os.sched_getaffinity(0)), library.sched_getcpu)
