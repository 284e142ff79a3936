"""What a program that was compiled for this machine's processor depends on."""

from __future__ import annotations

import os
import platform
from functools import cache

_INFO = "/proc/cpuinfo"
# All processors of a machine repeat these; what differs between them (clock, core number) does not matter.
_FIELDS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features", "isa", "uarch"),
)
_BYTES = 1 << 14


def description() -> str:
    """Names the processor, its instruction sets, and for how many threads XLA's CPU compiler divides work.

    XLA compiles for exactly the processor that it runs on. Another one of the same family may lack an instruction.
    """
    return f"{_processor()}\nthreads: {_threads()}"


def _threads() -> str:
    """XLA reads `NPROC` before it counts the processors that this process may use."""
    if own := os.environ.get("NPROC"):
        return own
    usable = getattr(os, "sched_getaffinity", None)
    return str(len(usable(0)) if usable else os.cpu_count())


@cache
def _processor() -> str:
    general = f"{platform.system()} {platform.machine()} {platform.processor()}"
    try:
        with open(_INFO, encoding="utf-8", errors="replace") as file:
            first = file.read(_BYTES).split("\n\n")[0]
    except OSError:
        return general
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() in _FIELDS]
    return "\n".join([general, *lines])
