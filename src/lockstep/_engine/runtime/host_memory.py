"""Memory that glibc's malloc holds free in this process: most of it is what compiling a large program leaves.

Its pages go back to the system, and malloc is kept from searching its pieces.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from threading import Lock

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

_held: list[int] = []
_lock = Lock()


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
    if "mmap_max=0" not in os.environ.get("GLIBC_TUNABLES", ""):
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


@functools.cache
def _function(name: str) -> Callable[..., int | None] | None:
    """Returns a function of this process' C library that takes and returns pointers or sizes; `None` without glibc."""
    # Others, such as musl, have no malloc_trim.
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "malloc_trim"):
        return None
    function = library[name]
    function.argtypes, function.restype = [ctypes.c_size_t], ctypes.c_void_p
    return function
