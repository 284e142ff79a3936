"""Memory that malloc holds free goes back to the system, and its pieces out of malloc's lists."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from lockstep._engine.runtime import host_memory
from lockstep._engine.runtime.host_memory import release_free_memory
from lockstep._launch.task import malloc_settings

_PROGRAM = """
import ctypes
from lockstep._engine.runtime.host_memory import release_free_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]


def megabytes():
    return int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0]) / 1024


blocks = [libc.malloc(65_536) for _ in range(4_000)]
for block in blocks:
    ctypes.memset(block, 1, 65_536)
# The last one keeps the heap from becoming shorter by itself.
for block in blocks[:-1]:
    libc.free(block)
before = megabytes()
release_free_memory()
print(before - megabytes())
"""

_PIECES = """
import ctypes
from lockstep._engine.runtime.host_memory import hold_fragments, release_fragments

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

# Those with odd numbers stay, and keep the others from becoming one.
blocks = [libc.malloc(size + 16 * i) for i in range({n}) for size in (40_000, 2_000, 70_000, 2_000, 600_000, 2_000)]
pieces = set(blocks[::2])
for block in pieces:
    libc.free(block)


def count():
    # Of some blocks, those that lie where a piece begins.
    found = [libc.malloc(70_000 + 16 * i) for i in range(300)]
    for block in found:
        libc.free(block)
    return len(pieces.intersection(found))


before = count()
hold_fragments()
held = count()
release_fragments()
print(before, held, count())
"""
_LARGE = """
import ctypes
from lockstep._engine.runtime.host_memory import separate_large_blocks

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * 2


def megabytes(what):
    return int(open("/proc/self/status").read().split(what + ":")[1].split()[0]) / 1024


def step():
    # A step's large block, and one that is allocated meanwhile and stays.
    large = libc.aligned_alloc(64, 96 << 20)
    ctypes.memset(large, 1, 96 << 20)
    libc.malloc(200_000)
    libc.free(large)


# No room for small blocks in what the imports have left.
for _ in range(401):
    libc.malloc(200_000 + {shift})
before = megabytes("VmRSS")
step()
if {separates}:
    separate_large_blocks()
for _ in range(20):
    step()
print((megabytes("VmHWM") - before) / 96)
"""
_NEEDS_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")


def _run(program: str, variables: dict[str, str]) -> list[float]:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **variables})
    return [float(number) for number in done.stdout.split()]


@_NEEDS_GLIBC
def test_what_is_free_goes_back() -> None:
    (released,) = _run(_PROGRAM, {})
    assert released > 200


@_NEEDS_GLIBC
def test_pieces_are_held_until_they_are_released() -> None:
    before, held, after = _run(_PIECES.replace("{n}", "800"), malloc_settings({}))
    # Some of the blocks find room elsewhere, in what the imports have left.
    assert before > 250
    assert held == 0
    assert after > 250


@_NEEDS_GLIBC
def test_pieces_are_left_to_a_malloc_that_gives_memory_back() -> None:
    before, held, after = _run(_PIECES.replace("{n}", "800"), {"GLIBC_TUNABLES": ""})
    assert before == held == after


@_NEEDS_GLIBC
def test_a_few_pieces_are_left_to_malloc() -> None:
    before, held, _ = _run(_PIECES.replace("{n}", "100"), malloc_settings({}))
    assert before == held > 80


@_NEEDS_GLIBC
def test_a_large_block_finds_its_place_again() -> None:
    """Wherever the heap's free end begins; left alone, a block finds it by chance."""

    def blocks(separates: bool) -> list[float]:
        # 401 blocks, each so much longer: the free end begins 0, 16, 32 or 48 bytes behind an aligned address.
        programs = [_LARGE.replace("{separates}", str(separates)).replace("{shift}", str(n)) for n in (0, 16, 32, 48)]
        return [b for program in programs for b in _run(program, malloc_settings({}))]

    assert max(blocks(separates=True)) < 1.2
    assert max(blocks(separates=False)) > 1.8


def test_any_platform_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    host_memory._function.cache_clear()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_max=0")
    release_free_memory()
    host_memory.hold_fragments()
    host_memory.release_fragments()
    host_memory.separate_large_blocks()
    assert host_memory._function("malloc") is None
    host_memory._function.cache_clear()
