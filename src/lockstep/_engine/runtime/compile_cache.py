"""Turns on JAX's persistent cache of compiled programs, in a directory that nobody else can write in.

The store, its keys and its settings are JAX's. `examples/mnist.py` on 2 cores came to its first step after 2.1 s with
it, and after 4.3 s or more without.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from lockstep._engine.runtime.cache_directory import DIRECTORY, UnsafeDirectory, private_directory

_log = logging.getLogger("lockstep")
_SECONDS = "jax_persistent_cache_min_compile_time_secs"
# JAX's default: programs that were compiled faster are not kept.
_DEFAULT_SECONDS = 1.0

_is_settled = False


def enable(process: int) -> None:
    """Sets JAX's cache directory, once per process, unless the program or its environment has, or has switched it off.

    It is `compiled` in `$LOCKSTEP_CACHE_DIR`, by default in the user's cache directory. There is no cache where that
    cannot be made, or others can write there.

    Args:
        process: This process' index in its job.
    """
    global _is_settled
    if _is_settled or not hasattr(os, "geteuid"):
        return
    _is_settled = True
    if _is_configured():
        return
    directory = _directory()
    if directory is not None:
        _configure(directory, process)


def _is_configured() -> bool:
    import jax

    settings: Any = jax.config
    return bool(settings.jax_compilation_cache_dir) or not settings.jax_enable_compilation_cache


def _configure(directory: Path, process: int) -> None:
    import jax

    from lockstep._engine.runtime import cache_writes

    jax.config.update("jax_compilation_cache_dir", str(directory))
    if getattr(jax.config, _SECONDS) == _DEFAULT_SECONDS:
        # A start compiles dozens of small programs: reading one takes 1 ms, compiling it 10.
        jax.config.update(_SECONDS, 0.0)
    if process:
        cache_writes.install(str(directory))
    _log.debug("Compiled programs are kept in %s.", directory)


def _directory() -> Path | None:
    try:
        return private_directory("compiled")
    except UnsafeDirectory as reason:
        given = os.environ.get(DIRECTORY)
        refused = f"{DIRECTORY}={given!r} is refused: " if given else ""
        _log.warning(
            "Compiled programs are kept only where no other user can write, and are not kept now: %s%s. Make it "
            "private (chmod go-w), let %s name a directory of your own, or set JAX_ENABLE_COMPILATION_CACHE=0.",
            *(refused, reason, DIRECTORY),
        )
    except (OSError, RuntimeError) as reason:  # No home directory, a read-only file system.
        _log.debug("Compiled programs cannot be kept in %s: %s", os.environ.get(DIRECTORY, "~"), reason)
    return None
