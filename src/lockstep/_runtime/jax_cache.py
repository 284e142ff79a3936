"""Puts our store of compiled programs behind jax's own cache of them.

jax's store writes entries in place, so that another process can read half of one; bounds its size only with a package
that jax does not require; and is written by the first process alone, so that on several machines the others, and on
one machine those whose keys differ, compile every time. Its keys and its serialisation are used as they are. Where the
installed jax lacks a part that is replaced, `install` changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import jax
from jax._src import cache_key as _keys
from jax._src import compilation_cache as _jax_store
from jax._src import compiler as _compiler
from jax._src import distributed as _distributed

from lockstep._runtime.compiled_programs import CompiledPrograms

_log = logging.getLogger("lockstep")
_CACHE_WRITE = "_cache_write"
_HASH_DEVICES, _HASH_TOPOLOGY = "_hash_devices", "_hash_accelerator_config"
_WRITE = ("cache_key", "compile_time_secs", "module_name", "backend", "executable")
# What jax keeps unless told otherwise: programs that took it longer than this.
_DEFAULT_SECONDS = 1.0


class Store:
    """Our store with the interface of jax's."""

    def __init__(self, path: str, programs: CompiledPrograms) -> None:
        self._path = path
        self._programs = programs

    def get(self, key: str) -> bytes | None:
        """Returns the program of `key`, or `None`."""
        if _settings().jax_compilation_cache_dir != self._path:  # The program has chosen another one meanwhile.
            _jax_store.reset_cache()
            return None
        # On GPUs the processes of a job tune the parts of a program together, while all of them compile it.
        return self._programs.get(key, in_turn=jax.default_backend() == "cpu")

    def put(self, key: str, value: bytes) -> None:
        """Keeps the program of `key`."""
        self._programs.put(key, value)


def is_configured() -> bool:
    """Whether the program or its environment has chosen a cache, or wants none."""
    settings = _settings()
    return bool(settings.jax_compilation_cache_dir) or not settings.jax_enable_compilation_cache


def size_limit() -> int | None:
    """The size in bytes that jax's setting allows, or `None` if it says nothing."""
    limit = int(_settings().jax_compilation_cache_max_size)
    return None if limit < 0 else limit


def install(path: str, programs: CompiledPrograms) -> bool:
    """Makes `programs` the store of every program that is compiled from now on; returns whether that was possible."""
    if not _is_known():
        _log.debug("This version of jax has another cache of compiled programs; there is none in this process.")
        return False
    _jax_store.get_file_cache = _choosing(_jax_store.get_file_cache, path, programs)
    setattr(_compiler, _CACHE_WRITE, _by_everyone(getattr(_compiler, _CACHE_WRITE), path, programs))
    setattr(_keys, _HASH_TOPOLOGY, _alike_on_processes(getattr(_keys, _HASH_TOPOLOGY)))
    jax.config.update("jax_compilation_cache_dir", path)
    if _settings().jax_persistent_cache_min_compile_time_secs == _DEFAULT_SECONDS:
        # Reading the smallest program takes 1 ms, compiling it 10.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return True


def _settings() -> Any:
    return jax.config


def _is_known() -> bool:
    parts = [
        (_jax_store, ("get_file_cache", "reset_cache", "put_executable_and_time")),
        (_compiler, (_CACHE_WRITE,)),
        (_keys, (_HASH_DEVICES, _HASH_TOPOLOGY)),
        (_distributed, ("global_state",)),
    ]
    if not all(hasattr(module, name) for module, names in parts for name in names):
        return False
    return tuple(inspect.signature(getattr(_compiler, _CACHE_WRITE)).parameters)[: len(_WRITE)] == _WRITE


def _choosing(theirs: Callable[..., Any], path: str, programs: CompiledPrograms) -> Callable[..., Any]:
    def get_file_cache(wanted: str) -> Any:
        return (Store(path, programs), path) if wanted == path else theirs(wanted)

    return get_file_cache


def _alike_on_processes(theirs: Callable[..., None]) -> Callable[..., None]:
    """The function of jax that adds the devices to a key.

    On CPUs it adds which of them are this process' own. The program of a step is the same on all processes.
    """

    def hash_topology(hashed: Any, devices: Any) -> None:
        on_cpus = all(device.platform == "cpu" for device in devices.flat)
        (getattr(_keys, _HASH_DEVICES) if on_cpus else theirs)(hashed, devices)

    return hash_topology


def _by_everyone(theirs: Callable[..., None], path: str, programs: CompiledPrograms) -> Callable[..., None]:
    """The function of jax that keeps programs on the first process only, for the others too."""
    signature = inspect.signature(theirs)

    def cache_write(*arguments: Any, **named: Any) -> None:
        try:
            write(*arguments, **named)
        finally:
            programs.done()

    def write(*arguments: Any, **named: Any) -> None:
        if not _distributed.global_state.process_id or _settings().jax_compilation_cache_dir != path:
            theirs(*arguments, **named)
            return
        given = signature.bind(*arguments, **named).arguments
        if not given.get("host_callbacks"):  # Their addresses are part of the program.
            _keep(given)

    return cache_write


def _keep(given: dict[str, Any]) -> None:
    try:
        _jax_store.put_executable_and_time(
            given["cache_key"],
            given["module_name"],
            given["executable"],
            given["backend"],
            int(given["compile_time_secs"]),
        )
    except Exception as error:  # As jax does: a program that cannot be kept is no reason to end.
        _log.debug("The compiled program %s is not kept: %s", given["module_name"], error)
