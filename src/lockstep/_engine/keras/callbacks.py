"""Callbacks of a run on many workers: only the chief writes and prints."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Any

import keras
from keras.src import tree

from lockstep._engine.runtime.runtime import Runtime

# They write files, to the same place from every worker. What they restore reaches the others through the chief.
_WRITERS: tuple[type, ...] = tuple(
    getattr(keras.callbacks, name)
    for name in (
        "BackupAndRestore",
        "CSVLogger",
        "ModelCheckpoint",
        "OrbaxCheckpoint",
        "ProgbarLogger",
        "RemoteMonitor",
        "TensorBoard",
    )
    if hasattr(keras.callbacks, name)
)

# The attribute by which `lockstep.training.callbacks.OnChief` is known, and under which it holds its callback.
ON_CHIEF = "callback_on_chief"


def callback_list(callbacks: Any, model: Any, runtime: Runtime, verbose: Any, **params: Any) -> Any:
    """Returns a `keras.callbacks.CallbackList`, without the writers unless this is the chief."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks = _of_task(callbacks.callbacks, runtime)
        return callbacks
    chosen = _of_task(tree.flatten(callbacks) if callbacks else [], runtime)
    verbose = _verbosity(verbose, runtime)
    return keras.callbacks.CallbackList(chosen, add_progbar=verbose != 0, verbose=verbose, model=model, **params)


def _of_task(callbacks: list[Any], runtime: Runtime) -> list[Any]:
    """Returns the callbacks that run here; on the chief those of `OnChief` themselves, so that Keras' are known."""
    if runtime.is_chief:
        return [getattr(c, ON_CHIEF, c) for c in callbacks]
    return [c for c in callbacks if not isinstance(c, _WRITERS) and not hasattr(c, ON_CHIEF)]


def _verbosity(verbose: Any, runtime: Runtime) -> Any:
    """A moving bar on a terminal or in a notebook, one line per epoch elsewhere, nothing but on the chief."""
    if not runtime.is_chief:
        return 0
    if verbose == "auto":
        return 1 if sys.stdout.isatty() or "ipykernel" in sys.modules else 2
    return verbose


@contextlib.contextmanager
def only_chief_prints(runtime: Runtime) -> Generator[None]:
    """While open, what callbacks print through Keras (`EarlyStopping(verbose=1)`) appears on the chief only."""
    if runtime.is_chief or not keras.config.is_interactive_logging_enabled():
        yield
        return
    keras.config.disable_interactive_logging()
    try:
        yield
    finally:
        keras.config.enable_interactive_logging()
