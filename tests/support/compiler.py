"""Whether this machine is one that kernels in C are for, found out without the code that is tested.

So a kernel that does not compile fails, where a compiler and the processor are there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

_INFO = Path("/proc/cpuinfo")


def _is_for_kernels() -> bool:
    flags = set(_INFO.read_text(encoding="utf-8").split()) if _INFO.exists() else set[str]()
    return {"avx2", "fma"} <= flags and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


needs_kernels = pytest.mark.skipif(not _is_for_kernels(), reason="no C compiler, or a processor without AVX2")
