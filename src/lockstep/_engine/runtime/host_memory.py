"""Memory that glibc's malloc holds free in this process: most of it is what compiling a large program leaves.

Its pages go back to the system; malloc does not search its pieces, and finds the place of a large block again.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

# From 512 KB to 16 KB: each piece of free memory takes a few blocks, of each of which one page is touched.
_SIZES = [1 << power for power in range(19, 13, -1)]
# Bytes that malloc adds to blocks of these sizes.
_HEADER = 16
# So many blocks one behind the other lie in a larger piece, of which there are few.
_RUN = 3
# Of each size; a MobileNetV2's step takes 9,000.
_MOST_BLOCKS = 50_000
# A program that comes out of the cache leaves a few hundred. They are quick to search, and without them small blocks
# would lie in the way of a step's large one, which then takes new memory.
_FEW_BLOCKS = 2_000

# Of free memory for blocks that are smaller than a step's large one.
_ROOM = 64 << 20
# A heap with less has no large blocks; and from what size on free memory is kept from them.
_LEAST_FREE, _PIECE = 32 << 20, 16 << 20
# What keeps two pieces of free memory from becoming one.
_SEPARATOR = 64
# How long XLA's thread has to free a program's memory after its results are ready.
_FREE_SECONDS = 0.001

_held: list[int] = []
_lock = Lock()


def is_kept() -> bool:
    """Returns whether malloc is set to keep what is freed, as `lockstep run` sets it, and never to map a block."""
    return "mmap_max=0" in os.environ.get("GLIBC_TUNABLES", "")


def release_free_memory() -> None:
    """Gives memory that malloc holds free back to the system, where that is glibc's malloc, and holds its pieces."""
    if trim := _function("malloc_trim"):
        # Those of an earlier compilation first: what lay between them may be free by now.
        release_fragments()
        trim(0)
        hold_fragments()


def hold_fragments() -> None:
    """Allocates the pieces of free memory of 16 KB to 1 MB, where malloc is set to keep memory (`mmap_max=0`).

    glibc has free pieces in lists sorted by size, and walks along them for every block that it allocates. Compiling
    leaves thousands, no two of one size, between what stays. A step of MobileNetV2 at 224x224 allocates 9,000 blocks of
    64 KB, for kernels' operands: of its 600 ms malloc took 170, on 2 cores, and 6 of 440 without these pieces.
    """
    if not is_kept():
        return  # Then malloc maps larger blocks by themselves, and threads have lists of their own.
    malloc, free = _function("malloc"), _function("free")
    if malloc and free:
        blocks = [block for size in _SIZES for block in _allocate_pieces(size, malloc, free)]
        with _lock:
            _held.extend(blocks)
        if len(blocks) <= _FEW_BLOCKS:
            release_fragments()


def release_fragments() -> None:
    """Frees what `hold_fragments` holds."""
    free = _function("free")
    with _lock:
        while free and _held:
            free(_held.pop())


def separate_large_blocks() -> None:
    """Leaves free memory for other blocks before the place of a step's large one, after the first run of a program.

    XLA allocates the temporary memory of a step in one block, and frees it behind the step. To align a block, glibc
    looks for 96 bytes more than it takes: so it never fits again where it was, once a small one lies right behind it,
    and the heap grows by another. Now small ones find a smaller piece of free memory, and the large one lies alone at
    the end of the heap. All else that is free is held: its pages have gone back to the system. `fit` of a PointNet,
    whose step takes 97 MB, had 805 MB resident and has 515; of a WaveNet (140 MB) 1,009 and 615.
    """
    malloc, free, trim = map(_function, ("malloc", "free", "malloc_trim"))
    if not (malloc and free and trim):
        return
    time.sleep(_FREE_SECONDS)
    if _free_bytes() < _LEAST_FREE:
        return
    trim(0)
    end = _mark_end(malloc)
    room = malloc(_ROOM) or 0
    if room > end:
        end = _mark_end(malloc)
    # Before the end no other piece is left in which the large block had room.
    with _lock:
        while (piece := malloc(_PIECE) or 0) and piece < end:
            _held.append(piece)
    free(piece)
    free(room)
    trim(0)


def _mark_end(malloc: Callable[[int], int | None]) -> int:
    """Allocates a small block where the free end of the heap begins, and returns its address."""
    # No piece of free memory is larger than all of them.
    block = malloc(_free_bytes() + 1)
    realloc = _function("realloc", (ctypes.c_void_p, ctypes.c_size_t))
    if not block or realloc is None:
        return 0
    # So long that the next block is aligned: glibc would keep what it cuts off at its beginning in a thread's cache.
    return realloc(block, _SEPARATOR + -block % _SEPARATOR - _HEADER) or 0


def _allocate_pieces(size: int, malloc: Callable[[int], int | None], free: Callable[[int], object]) -> list[int]:
    """Returns blocks of `size` bytes in all free pieces that have room for at most two of them."""
    blocks: list[int] = []
    run: list[int] = []
    # malloc takes the smallest piece that is large enough.
    while len(run) < _RUN and len(blocks) < _MOST_BLOCKS:
        block = malloc(size)
        if block is None:
            break
        if run and block != run[-1] + size + _HEADER:
            blocks += run
            run = []
        run.append(block)
    for block in run:
        free(block)
    return blocks


class _Usage(ctypes.Structure):
    """Counts of malloc's memory, as glibc's mallinfo2 returns them."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "free", "top")
    )


def _free_bytes() -> int:
    """Returns how much memory malloc holds free; 0 with a glibc before 2.33, which counts up to 2 GB."""
    usage = _function("mallinfo2", (), _Usage)
    return usage().free if usage else 0


@functools.cache
def _function(
    name: str, arguments: tuple[Any, ...] = (ctypes.c_size_t,), result: Any = ctypes.c_void_p
) -> Callable[..., Any] | None:
    """Returns a function of this process' C library, by default from a size to a pointer; `None` if it has none.

    Without glibc there is none: others, such as musl, have no malloc_trim.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "malloc_trim") or not hasattr(library, name):
        return None
    function = library[name]
    function.argtypes, function.restype = arguments, result
    return function
