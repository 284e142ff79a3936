"""How processes are tied to the launcher by the kernel (Linux; elsewhere the warden alone watches over them)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)


def die_with(launcher: int) -> None:
    """Have the calling process, a fork of the process `launcher`, killed when that ends; end if it has already."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(128 + signal.SIGKILL)


@contextmanager
def adopting_orphans() -> Generator[None]:
    """Inherit what tasks leave running, to see it end: the first process of a container may never reap it."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _control(_PR_SET_CHILD_SUBREAPER, 0)


def reap(group: int) -> None:
    """Take note of the end of every adopted process of the group."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _control(option: int, value: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)
