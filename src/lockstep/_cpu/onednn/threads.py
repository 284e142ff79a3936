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
        own = cores if len(cores) <= MOST_PIECES else ()
        bound = [ThreadPoolExecutor(1, _NAME, core_binding.bind_thread, ([core],)) for core in own]
        # By the caller's core: those of the others, beginning with the next one.
        self._beside = {core: [*bound[i + 1 :], *bound[:i]] for i, core in enumerate(own)}
        # oneDNN starts threads of its own for a piece of several cores, which would be bound with that of the piece.
        self._free = ThreadPoolExecutor(MOST_PIECES - 1, _NAME)

    def beside_caller(self, count: int) -> Sequence[Executor]:
        """Returns what is to execute `count` pieces while the calling thread computes another one."""
        others = self._beside.get(self._current_core(), [])
        return others[:count] if count <= len(others) else [self._free] * count


@functools.cache
def threads() -> Threads:
    """Returns the threads of this process."""
    # Python has no function that tells the core. PyDLL: no other thread takes the interpreter during this short call.
    library = ctypes.PyDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "sched_getcpu") or not core_binding.is_enabled():
        return Threads([], lambda: 0)
    return Threads(sorted(os.sched_getaffinity(0)), library.sched_getcpu)
