"""Compiles programs of training in a process of their own, and into the cache, from which this one loads them.

A compilation leaves this process' heap in pieces: what XLA and LLVM allocated lies between what the program and its
threads need. Operations that follow pointers then take longer, and malloc searches longer, for as long as the process
lives. `fit` of a MobileNetV3Large at 64x64 took 63 ms a step in the process that had compiled it and 47 in one that had
loaded it from the cache, with 1,584 and 975 MB resident (2 cores). With a compiler's process it takes 47 and 46 ms.
Of small networks a step takes 3 to 13 % less. To start the process and to bring the program through the cache takes
half a second, of which compiling there gives back up to as much; so the smallest programs are compiled here.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep._cpu import targets
from lockstep._engine.runtime import compile_cache, environment, limits

_log = logging.getLogger("lockstep")
VARIABLE = "LOCKSTEP_COMPILE_PROCESS"
# Of MLIR's bytecode. Programs of 28 KB took 0.6 s to compile, of 57 KB 1.5, of 87 KB 1.8, of 182 KB 7.2, of 438 KB 17.
_LEAST_BYTES = 25_000
START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from lockstep._cpu.compile_process import main
main(sys.argv[2])
"""
_MESSAGE_CHARACTERS = 2_000

# Its `directory` is the cache's while jax compiles a program of lockstep's on this thread.
_thread = threading.local()
_is_installed = False


@dataclass(frozen=True)
class Request:
    """A program to compile, as it is sent to the process that does.

    Attributes:
        key: Under which jax looks for it in the cache.
        name: Of the program.
        directory: Of the cache.
        devices: The ids of the devices that it is for.
        device_count: Setting `jax_num_cpu_devices` of this process.
        targets: The names of its custom calls that are functions of this process' Python.
        options: Of XLA's compiler, serialized.
        code: MLIR's bytecode.
    """

    key: str
    name: str
    directory: str
    devices: Sequence[int]
    device_count: int
    targets: Sequence[str]
    options: bytes
    code: bytes

    def write(self, directory: Path) -> None:
        """Writes it into a directory, as three files."""
        facts = {name: value for name, value in asdict(self).items() if not isinstance(value, bytes)}
        (directory / "facts.json").write_text(json.dumps(facts))
        (directory / "options").write_bytes(self.options)
        (directory / "code").write_bytes(self.code)

    @classmethod
    def read(cls, directory: Path) -> Request:
        """Reads what `write` has written."""
        facts = json.loads((directory / "facts.json").read_text())
        return cls(**facts, options=(directory / "options").read_bytes(), code=(directory / "code").read_bytes())


def begin() -> None:
    """Has the program that jax compiles next on this thread be compiled in a process of its own, unless it is small."""
    directory = compile_cache.directory()
    if directory is None or not sys.executable:
        return
    if environment.env_flag(VARIABLE, "programs are compiled in a process of their own"):
        _install()
        _thread.directory = directory


def end() -> None:
    """Has this process compile what jax compiles next on this thread."""
    _thread.directory = None


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
        directory = getattr(_thread, "directory", None)
        # Addresses of host callbacks are part of a program.
        if directory is not None and not host_callbacks and jax.process_count(backend) == 1:
            code = _bytecode(computation)
            if len(code) >= _LEAST_BYTES:
                try:
                    devices = [device.id for device in executable_devices]
                    options = compile_options.SerializeAsString()
                    count = settings.jax_num_cpu_devices
                    _compile(Request(cache_key, module_name, directory, devices, count, targets.names(), options, code))
                    return _load(backend, executable_devices, compile_options, cache_key)
                # Whatever keeps that process from it, this one can do without; an error of the program comes again.
                except Exception as error:
                    _log.debug("%s is compiled here, not in a process of its own: %s", module_name, error)
        return theirs(backend, computation, executable_devices, compile_options, host_callbacks, module_name, cache_key)

    module._compile_and_write_cache = compile_and_write_cache


def _bytecode(computation: Any) -> bytes:
    code = io.BytesIO()
    computation.operation.write_bytecode(code)
    return code.getvalue()


def _load(backend: Any, devices: Any, options: Any, key: str) -> Any:
    """Returns a program of the cache."""
    from jax._src import compilation_cache

    program, _ = compilation_cache.get_executable_and_time(key, options, backend, devices)
    if program is None:
        raise FileNotFoundError(f"there is no program {key} in the cache")
    return program


def _compile(request: Request) -> None:
    """Has a process compile a program into the cache."""
    with tempfile.TemporaryDirectory(prefix="lockstep-program-") as directory:
        request.write(Path(directory))
        command = [sys.executable, "-c", START, json.dumps(sys.path), directory]
        # What suits a process that trains, one arena for all threads, has LLVM's threads wait for each other: a
        # DenseNet169's step took 90 s to compile, and 56 as malloc is by itself.
        variables = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
        variables["JAX_PLATFORMS"] = "cpu"
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


def main(directory: str) -> None:
    """Compiles the program of a directory's request into the cache, as the process that was started for it."""
    # The one that waits decides what comes of an interrupt, and ends this one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_input, daemon=True).start()
    status = 0
    try:
        compile_into_cache(Request.read(Path(directory)))
    except BaseException as error:
        print(f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS], flush=True)
        status = 1
    # To end in order takes another half second, mostly to free memory.
    os._exit(status)


def _end_with_input() -> None:
    # Not by sys.stdin, whose lock would be held.
    while os.read(0, 1):
        pass
    os._exit(1)


def compile_into_cache(request: Request) -> None:
    """Compiles a program for this process' devices, and puts it into the cache."""
    import jax
    from jax._src import compilation_cache

    jax.config.update("jax_num_cpu_devices", request.device_count)
    compile_cache.use(request.directory)
    for name in request.targets:
        # XLA asks for a target when it compiles a call of it, and calls it in the process that loads the program.
        targets.register(name, lambda frame: None)
    by_id = {device.id: device for device in jax.local_devices(backend="cpu")}
    devices = [by_id[number] for number in request.devices]
    backend: Any = devices[0].client
    began = time.monotonic()
    executable = backend.compile_and_load(
        request.code,
        executable_devices=importlib.import_module("jaxlib._jax").DeviceList(tuple(devices)),
        compile_options=importlib.import_module("jaxlib._jax").CompileOptions.ParseFromString(request.options),
    )
    seconds = int(time.monotonic() - began)
    compilation_cache.put_executable_and_time(request.key, request.name, executable, backend, seconds)
