"""Prints the state of a process, as JSON, after the statements that are its argument and then the import of Keras."""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

exec(sys.argv[1])

_finders = list(sys.meta_path)

import jax  # noqa: E402
import keras  # noqa: E402
from jax._src import cache_key, compilation_cache, compiler, xla_bridge  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from keras.src.backend.common.variables import Variable  # noqa: E402
from keras.src.backend.jax.trainer import JAXTrainer  # noqa: E402
from keras.src.legacy.saving import legacy_h5_format  # noqa: E402
from keras.src.optimizers.base_optimizer import BaseOptimizer  # noqa: E402
from keras.src.saving import saving_lib  # noqa: E402
from keras.src.trainers import data_adapters  # noqa: E402
from keras.src.trainers.trainer import Trainer  # noqa: E402

_CLASSES = [
    *(keras.Model, keras.Layer, keras.Sequential, keras.Loss, keras.Metric, keras.Optimizer, keras.callbacks.Callback),
    *(keras.Variable, keras.optimizers.LossScaleOptimizer, JAXTrainer, Trainer, BaseOptimizer, Variable),
    *(jax.Array, jax.core.Tracer, type(jax.jit(abs)), xla_bridge.xla_client.ArrayImpl),
]
_MODULES = [
    *(saving_lib, legacy_h5_format, data_adapters, compiler, compilation_cache, cache_key, xla_bridge, mlir),
    *(jax, jax.lax, jax.numpy, keras.saving, keras.utils),
]
_MEGABYTE = 1 << 20


def _code(function: Any) -> Iterator[str]:
    """Says where a function was written, and those that it wraps."""
    while function is not None:
        code = getattr(function, "__code__", None)
        name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
        yield name if code is None else f"{code.co_filename}:{code.co_firstlineno}"
        function = getattr(function, "__wrapped__", None)


def _functions(owner: Any) -> dict[str, list[str]]:
    return {name: list(_code(value)) for name, value in sorted(vars(owner).items()) if callable(value)}


def _malloc() -> dict[str, Any]:
    """Returns how malloc treats large and small blocks that are freed, and how many heaps threads have."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def is_kept(count: int, size: int) -> bool:
        blocks = (ctypes.c_void_p * count)()  # Made before: what Python allocates between the blocks would stay.
        before = resident()
        for i in range(count):
            blocks[i] = libc.malloc(size)
            libc.memset(blocks[i], 1, size)
        for i in reversed(range(count)):
            libc.free(blocks[i])
        return resident() - before > count * size // 2

    together = threading.Barrier(4)
    heaps: set[int] = set()

    def allocate() -> None:
        together.wait()
        heaps.add(libc.malloc(1000) // (64 * _MEGABYTE))  # A heap of a thread is of 64 MB, at a multiple of that.
        together.wait()

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "keeps small": is_kept(2560, _MEGABYTE // 10),
        "keeps large": is_kept(1, 256 * _MEGABYTE),
        "heaps": len(heaps),
    }


def _lowerings() -> dict[str, list[str]]:
    found = {"all": mlir._lowerings, **mlir._platform_specific_lowerings}
    return {f"{on} {primitive}": list(_code(r.rule)) for on, rules in found.items() for primitive, r in rules.items()}


_state = {
    "finders": [[repr(finder).partition(" at ")[0] for finder in found] for found in (_finders, sys.meta_path)],
    "path hooks": [repr(hook).partition(" at ")[0] for hook in sys.path_hooks],
    "sys": {name: list(_code(getattr(sys, name))) for name in ("exit", "excepthook", "unraisablehook", "displayhook")},
    "threads": {"hook": list(_code(threading.excepthook)), "running": sorted(t.name for t in threading.enumerate())},
    "atexit": atexit._ncallbacks(),
    "signals": {str(int(number)): repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
    "wakeup": signal.set_wakeup_fd(-1),
    "environment": {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"},
    "gc": [gc.isenabled(), *gc.get_threshold(), gc.get_freeze_count()],
    "malloc": _malloc(),
    "classes": {f"{c.__module__}.{c.__qualname__}": _functions(c) for c in _CLASSES},
    "functions": {module.__name__: _functions(module) for module in _MODULES},
    "lowerings": _lowerings(),
    "jax": {name: repr(value) for name, value in jax.config.values.items()},
    "backend": [xla_bridge.backends_are_initialized(), keras.config.backend()],
    "platforms": {name: list(_code(known.factory)) for name, known in xla_bridge._backend_factories.items()},
    "modules": {n: [type(m).__qualname__, str(getattr(m, "__file__", None))] for n, m in sys.modules.items()},
}
print(json.dumps(_state))
