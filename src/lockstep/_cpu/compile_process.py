"""Has programs of training compiled in a process of their own, from which this one loads them.

A compilation leaves this process' heap in pieces: what XLA and LLVM allocated lies between what the program and its
threads need. Operations that follow pointers then take longer, and malloc searches longer, for as long as the process
lives. `fit` of a MobileNetV3Large at 64x64 took 63 ms a step in the process that had compiled it and 47 in one that had
loaded it from the cache, with 1,584 and 975 MB resident (2 cores). With a compiler's process it takes 47 and 46 ms.
Of small networks a step takes 3 to 13 % less. To start the process and to load what it has compiled takes 0.2 s, of
which compiling there gives back up to as much; so the smallest programs are compiled here.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lockstep._cpu import targets
from lockstep._cpu.compile_program import Request, read_result
from lockstep._engine.runtime import compile_cache, environment, limits

_log = logging.getLogger("lockstep")
VARIABLE = "LOCKSTEP_COMPILE_PROCESS"
# Of MLIR's bytecode. Programs of 28 KB took 0.6 s to compile, of 57 KB 1.5, of 87 KB 1.8, of 182 KB 7.2, of 438 KB 17.
_LEAST_BYTES = 25_000
START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from lockstep._cpu.compile_program import main
main(sys.argv[2])
"""

# Its `is_ours` says whether jax compiles a program of lockstep's on this thread.
_thread = threading.local()
_is_installed = False


def begin() -> None:
    """Has the program that jax compiles next on this thread be compiled in a process of its own, unless it is small."""
    if compile_cache.directory() is None or not sys.executable:
        return
    if environment.env_flag(VARIABLE, "programs are compiled in a process of their own"):
        _install()
        _thread.is_ours = True


def end() -> None:
    """Has this process compile what jax compiles next on this thread."""
    _thread.is_ours = False


def _install() -> None:
    """Replaces the function by which jax compiles a program that its cache does not have."""
    # `jax.jit` has no setting for it, and what was compiled elsewhere (`jax.stages.Compiled`) is slower to call. Only
    # programs between `begin` and `end` go another way.
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    import jax
    from jax._src import compiler

    module: Any = compiler
    settings: Any = jax.config
    theirs = module._compile_and_write_cache

    def compile_and_write_cache(
        backend: Any,
        computation: Any,
        executable_devices: Any,
        compile_options: Any,
        host_callbacks: Sequence[Any],
        module_name: str,
        cache_key: str,
    ) -> Any:
        # Addresses of host callbacks are part of a program.
        if getattr(_thread, "is_ours", False) and not host_callbacks and jax.process_count(backend) == 1:
            code = _bytecode(computation)
            if len(code) >= _LEAST_BYTES:
                try:
                    devices = [device.id for device in executable_devices]
                    options = compile_options.SerializeAsString()
                    request = Request(devices, settings.jax_num_cpu_devices, targets.names(), options, code)
                    began = time.monotonic()
                    program = _compile(request)
                    seconds = int(time.monotonic() - began)
                    loaded = backend.deserialize_executable(program, executable_devices, compile_options)
                    _keep(cache_key, module_name, program, backend, seconds)
                    return loaded
                # Whatever keeps that process from it, this one can do without; an error of the program comes again.
                except Exception as error:
                    _log.debug("%s is compiled here, not in a process of its own: %s", module_name, error)
        return theirs(backend, computation, executable_devices, compile_options, host_callbacks, module_name, cache_key)

    module._compile_and_write_cache = compile_and_write_cache


def _bytecode(computation: Any) -> bytes:
    code = io.BytesIO()
    computation.operation.write_bytecode(code)
    return code.getvalue()


def _keep(key: str, name: str, program: bytes, backend: Any, seconds: int) -> None:
    """Puts a serialized program into the cache."""
    from jax._src import compilation_cache

    # jax serializes what it is given; this one is serialized.
    cache: Any = compilation_cache
    try:
        cache.put_executable_and_time(key, name, SimpleNamespace(serialize=lambda: program), backend, seconds)
    except Exception as error:  # As in JAX: a program that cannot be kept is no reason to end.
        _log.debug("The compiled program %s is not kept: %s", name, error)


def _compile(request: Request) -> bytes:
    """Has a process compile a program, and returns it serialized."""
    with tempfile.TemporaryDirectory(prefix="lockstep-program-") as directory:
        request.write(Path(directory))
        # -S: sys.path is as it is here already.
        command = [sys.executable, "-S", "-c", START, json.dumps(sys.path), directory]
        # What suits a process that trains, one arena for all threads, has LLVM's threads wait for each other: a
        # DenseNet169's step took 90 s to compile, and 56 as malloc is by itself.
        variables = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
        # It reads nothing from its standard input: the end of that tells it that this process has gone.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as process:
            try:
                process.wait(limits.Limits.from_environment().compile)
            finally:
                process.kill()
            assert process.stdout is not None
            problem = process.stdout.read().decode(errors="replace")
        if process.returncode != 0:
            raise OSError(f"it ended with {process.returncode}: {problem}")
        return read_result(Path(directory))
