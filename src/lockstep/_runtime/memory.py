"""Keeps memory that a step has used for the next one.

XLA allocates the memory of a program anew each time that it runs on the CPU, and glibc gives large blocks back to the
system at once; so every step makes the system clear the same pages again. MobileNetV2 at batch 16 uses 0.9 GB a step:
it trained on 19.0 pictures a second without this, half a second of each step in the system, and on 31.1 with it (2-core
EPYC). In turn a process keeps the most memory that it has ever used, as training frameworks with an allocator of their
own do.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys

from lockstep._runtime import switch

_log = logging.getLogger("lockstep")
_SETTING = "LOCKSTEP_KEEP_MEMORY"
# Of glibc's malloc.h: parameters, and what they are set to. All blocks come from the one heap, which never shrinks: a
# heap of another thread could hold none of more than 64 MB, and would give them back.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_OPTIONS = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1))
_HEAPS_PER_CORE = 8

_settled = False
_keeps = False


def keep() -> None:
    """Has the process keep memory that it frees; once per process, on Linux with glibc.

    Whoever has set malloc up in the environment (`MALLOC_...`, `GLIBC_TUNABLES`) has the last word.

    Raises:
        ArgumentError: If `LOCKSTEP_KEEP_MEMORY` is neither 0 nor 1.
    """
    global _settled, _keeps
    if _settled:
        return
    wanted = switch.is_on(_SETTING, "the process keeps memory that a step has used for the next one")
    _settled = True
    _keeps = wanted and not _is_set_up() and all([_set(parameter, value) for parameter, value in _OPTIONS])


def allow_heaps_of_threads() -> bool:
    """Gives threads that start from now on heaps of their own again; returns whether memory is kept.

    For processes that start their programs on the main thread, whose heap is the one that never shrinks. XLA's threads
    need small blocks only, by the hundred for each short step: in one heap they waited for each other, which took a
    tenth of the time of an MLP's step.
    """
    return _keeps and _set(_ARENA_MAX, _HEAPS_PER_CORE * (os.cpu_count() or 1))


def _is_set_up() -> bool:
    return "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ)


def _set(parameter: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    # Other C libraries have no such function, or none that does this.
    if not hasattr(library, "gnu_get_libc_version") or not hasattr(library, "mallopt"):
        return False
    done = bool(library.mallopt(parameter, value))
    if not done:
        _log.debug("malloc does not take option %d.", parameter)
    return done
