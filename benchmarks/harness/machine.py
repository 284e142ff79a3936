"""What the measurements ran on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

# The flags of Linux that tell which kernels libraries choose, the widest vectors first.
_INSTRUCTIONS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}


def machine() -> dict[str, str]:
    """Returns the processor, its cores, memory and system in words; `revision` is git's, where there is one."""
    found = {
        "processor": processor(),
        "cores": str(cores()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "revision": _revision(),
    }
    return {name: value for name, value in found.items() if value}


def processor() -> str:
    """Returns the processor, and the widest vectors that it has instructions for."""
    name = _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()
    flags = _field("/proc/cpuinfo", "flags").split()
    widest = next((title for flag, title in _INSTRUCTIONS.items() if flag in flags), "")
    return f"{name} with {widest}" if widest else name


def cores() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def now() -> str:
    """Returns the time, UTC, to the minute."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _memory() -> str:
    kilobytes = _field("/proc/meminfo", "MemTotal").removesuffix(" kB")
    return f"{int(kilobytes) / 2**20:.0f} GiB" if kilobytes.isdigit() else ""


def _field(path: str, name: str) -> str:
    if not Path(path).exists():
        return ""
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()
