"""What callbacks remember, so that a training that was interrupted goes on with it.

Keras' callbacks forget everything when a training begins. What they must keep is listed here; any other callback tells
by methods of its own, `get_state()` and `set_state(state)`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import keras

_log = logging.getLogger("lockstep")

_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "History": ("history", "epoch"),
    "EarlyStopping": ("best", "wait", "stopped_epoch", "best_weights", "best_epoch"),
    "ReduceLROnPlateau": ("best", "wait", "cooldown_counter"),
    "ModelCheckpoint": ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    "SwapEMAWeights": ("_ema_weights_in_model",),
    "TensorBoard": ("_global_train_batch", "_previous_epoch_iterations"),
}
_KNOWN: dict[type, tuple[str, ...]] = {
    getattr(keras.callbacks, name): names for name, names in _ATTRIBUTES.items() if hasattr(keras.callbacks, name)
}


def named(callbacks: Iterable[Any]) -> dict[str, Any]:
    """Returns callbacks by name: that of the class, with a number from the second one of a class on."""
    found: dict[str, Any] = {}
    for callback in callbacks:
        name, number = type(callback).__name__, 1
        while (key := name if number == 1 else f"{name} {number}") in found:
            number += 1
        found[key] = callback
    return found


def states(callbacks: Iterable[Any]) -> dict[str, Any]:
    """Returns what each callback remembers, by its name; nothing for those that remember nothing."""
    found = {name: _state(callback) for name, callback in named(callbacks).items()}
    return {name: state for name, state in found.items() if state is not None}


def restore(callbacks: Iterable[Any], saved: Mapping[str, Any], is_chief: bool = True) -> None:
    """Gives callbacks what they remembered; the log names those that come without, and what nobody takes."""
    here = named(callbacks)
    for name, callback in here.items():
        if name in saved:
            _set_state(callback, saved[name])
        elif _state(callback) is not None:
            _log.warning("%s was not there when the backup was made: it begins anew.", name)
    if is_chief and (strangers := sorted(saved.keys() - here.keys())):
        _log.warning("The backup holds the state of %s, which this fit was not given.", ", ".join(strangers))


@contextlib.contextmanager
def files_kept(callbacks: Iterable[Any]) -> Generator[None]:
    """While open, callbacks that would begin their files anew go on with them."""
    loggers = [c for c in callbacks if isinstance(c, keras.callbacks.CSVLogger)]
    before = [logger.append for logger in loggers]
    for logger in loggers:
        logger.append = True
    try:
        yield
    finally:
        for logger, append in zip(loggers, before, strict=True):
            logger.append = append


def _state(callback: Any) -> Any:
    if callable(getattr(callback, "get_state", None)):
        return callback.get_state()
    if isinstance(callback, keras.callbacks.CSVLogger):
        return _csv_state(callback)
    names = [n for owner, names in _KNOWN.items() if isinstance(callback, owner) for n in names]
    return {n: getattr(callback, n) for n in names if hasattr(callback, n)} if names else None


def _set_state(callback: Any, state: Any) -> None:
    if callable(getattr(callback, "set_state", None)):
        callback.set_state(state)
    elif isinstance(callback, keras.callbacks.CSVLogger):
        _restore_csv(callback, state)
    else:
        for name, value in state.items():
            setattr(callback, name, value)


def _csv_state(logger: Any) -> dict[str, Any]:
    """Its columns, and how long its file is: what comes after that is not part of this state."""
    file = logger.csv_file
    if file is None or file.closed:
        return {"keys": logger.keys, "size": 0}
    file.flush()
    return {"keys": logger.keys, "size": os.fstat(file.fileno()).st_size}


def _restore_csv(logger: Any, state: Any) -> None:
    """Drops the rows that were written after the backup: they come again."""
    file, size = logger.csv_file, state["size"]
    there = os.fstat(file.fileno()).st_size
    if there < size:
        _log.warning("%s is shorter than when the backup was made: rows are missing in it.", logger.filename)
    os.ftruncate(file.fileno(), min(size, there))
    logger.append_header = min(size, there) == 0
    logger.keys, logger.writer = state["keys"], None
