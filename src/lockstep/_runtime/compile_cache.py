"""Programs that were compiled once are not compiled again when the program starts next time.

Of the seconds from process start to the first trained step of `examples/mnist.py`, more than half were XLA's (2-core
EPYC: 4.8 s without, 2.3 s with the cache).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from lockstep._runtime import processor, switch
from lockstep._runtime.cache_directory import DIRECTORY, UnsafeDirectory, private_directory
from lockstep._runtime.compiled_programs import CompiledPrograms

_log = logging.getLogger("lockstep")
_SETTING = "LOCKSTEP_COMPILE_CACHE"
_LIMIT_BYTES = 1 << 30

_settled = False


def enable() -> None:
    """Turns on the cache of compiled programs, once per process, before the first one is compiled.

    It lies in `compiled` in `$LOCKSTEP_CACHE_DIR`, by default in the user's cache directory. There is none with
    `LOCKSTEP_COMPILE_CACHE=0`, or where that directory cannot be made, or others can write there. A cache that was
    configured in jax is left as it is.

    Raises:
        ArgumentError: If `LOCKSTEP_COMPILE_CACHE` is neither 0 nor 1.
    """
    global _settled
    if _settled:
        return
    wanted = _is_wanted()
    _settled = True
    if wanted:
        _enable()


def _is_wanted() -> bool:
    return switch.is_on(_SETTING, "programs that are compiled are kept for the next start") and hasattr(os, "geteuid")


def _enable() -> None:
    from lockstep._runtime import jax_cache

    if jax_cache.is_configured():
        return
    directory = _directory()
    if directory is None:
        return
    limit = jax_cache.size_limit()
    programs = CompiledPrograms(directory, processor.description(), _LIMIT_BYTES if limit is None else limit)
    if jax_cache.install(str(directory), programs):
        _log.debug("Compiled programs are kept in %s.", directory)


def _directory() -> Path | None:
    try:
        return private_directory("compiled")
    except UnsafeDirectory as reason:
        given = os.environ.get(DIRECTORY)
        refused = f"{DIRECTORY}={given!r} is refused: " if given else ""
        _log.warning(
            "Compiled programs are kept only where no other user can write, and are not kept now: %s%s. Make it "
            "private (chmod go-w), let %s name a directory of your own, or set %s=0.",
            *(refused, reason, DIRECTORY, _SETTING),
        )
    except (OSError, RuntimeError) as reason:  # No home directory, a read-only file system.
        _log.debug("Compiled programs cannot be kept in %s: %s", os.environ.get(DIRECTORY, "~"), reason)
    return None
