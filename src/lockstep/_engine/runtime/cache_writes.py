"""Has every process of a job write to JAX's cache of compiled programs, not the first one alone.

JAX reads the cache on all processes, but a key names the devices of one process (on CPUs), or the disk is one machine's
own, so that the others compile every program at every start. Second start of `examples/mnist.py` on two workers, to the
first step: 5.2 CPU seconds with this, 9.8 without (2 cores, medians of two and three runs). There is no public setting
or hook for it, so this replaces one private function of JAX, which `tests/project/private_parts.py` lists.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import compilation_cache, compiler

_log = logging.getLogger("lockstep")


def install(directory: str) -> None:
    """Replaces JAX's writer of compiled programs, which writes nothing on this process.

    Args:
        directory: The cache that may be written in. In another one, of the user's own, JAX's rule holds.
    """
    module: Any = compiler
    settings: Any = jax.config
    theirs = module._cache_write

    def cache_write(
        cache_key: str,
        compile_time_secs: float,
        module_name: str,
        backend: Any,
        executable: Any,
        host_callbacks: Sequence[Any] | None = None,
    ) -> None:
        # Of jax before 0.12; later ones can keep programs with callbacks, and do not pass them on.
        callbacks = () if host_callbacks is None else (host_callbacks,)
        if settings.jax_compilation_cache_dir != directory:
            theirs(cache_key, compile_time_secs, module_name, backend, executable, *callbacks)
            return
        # As in JAX: addresses of host callbacks are part of the program, and what takes no time is not kept.
        if host_callbacks or compile_time_secs < settings.jax_persistent_cache_min_compile_time_secs:
            return
        try:
            compilation_cache.put_executable_and_time(
                cache_key, module_name, executable, backend, int(compile_time_secs)
            )
        except Exception as error:  # As in JAX: a program that cannot be kept is no reason to end.
            _log.debug("The compiled program %s is not kept: %s", module_name, error)

    module._cache_write = cache_write
