"""Binds tasks that share a machine to cores of their own, as MPI's launchers do.

Workers of a step wait for each other, and an asynchronous one for its server. Who is woken is often put on the core of
one that computes, and waits for it, while another core is idle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from lockstep._engine.runtime import local_devices
from lockstep._engine.runtime.environment import env_flag

VARIABLE = "LOCKSTEP_BIND_CORES"


def bind_to_part(number: int, count: int) -> None:
    """Binds this thread, and threads and processes that it starts from now on, to a part of the machine's cores.

    Nothing is bound where the parts would not be equal, where this process is bound already, or has GPUs, whose
    transfers are fastest from the cores nearest to them; nor where the system cannot bind.

    Args:
        number: Of this task, among those that compute on this machine.
        count: How many those are.

    Raises:
        ArgumentError: If `LOCKSTEP_BIND_CORES` is neither 0 nor 1.
    """
    cores = os.cpu_count() or 1
    if count < 2 or cores % count or not is_enabled() or local_devices.gpu_count():
        return
    if not hasattr(os, "sched_getaffinity") or local_devices.bound_cores() < cores:
        return
    own = sorted(os.sched_getaffinity(0))[number * cores // count : (number + 1) * cores // count]
    bind_thread(own)


def bind_thread(cores: Iterable[int]) -> None:
    """Binds this thread, and those that it starts from now on, to cores, where the system allows it."""
    with contextlib.suppress(OSError):  # A sandbox that forbids it.
        os.sched_setaffinity(0, cores)


def is_enabled() -> bool:
    """Returns whether threads may be bound; raises `ArgumentError` if `LOCKSTEP_BIND_CORES` is neither 0 nor 1."""
    return env_flag(VARIABLE, "binds workers of one machine, and threads of oneDNN, to cores of their own")
