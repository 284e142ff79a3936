"""Memory that malloc holds free goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from lockstep._engine.runtime import host_memory
from lockstep._engine.runtime.host_memory import release_free_memory

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_what_is_free_goes_back() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 200


def test_any_platform_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    host_memory._trim.cache_clear()
    monkeypatch.setattr(sys, "platform", "win32")
    release_free_memory()
    assert host_memory._trim() is None
    host_memory._trim.cache_clear()
