"""Keras' callbacks on many workers: who runs which, which look at batches, and their state in a backup."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import keras
from keras.src import tree

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import Outputs
from lockstep._types import Callback, Model
from lockstep.errors import UnsupportedError

_log = logging.getLogger("lockstep")
_UNLIMITED = 1 << 30


def _classes(*names: str) -> tuple[type, ...]:
    """Returns the classes of these names that this Keras has."""
    return tuple(getattr(keras.callbacks, name) for name in names if hasattr(keras.callbacks, name))


# They write files, to the same place from every worker. What they restore reaches the others through the chief.
_WRITERS = _classes(
    "BackupAndRestore",
    "CSVLogger",
    "ModelCheckpoint",
    "OrbaxCheckpoint",
    "ProgbarLogger",
    "RemoteMonitor",
    "TensorBoard",
)
# Callbacks of Keras that look at batches only to show or sum up how far a run is: they may miss some.
_MAY_MISS = _classes("ProgbarLogger", "History")
_BY_FREQUENCY = _classes("ModelCheckpoint", "BackupAndRestore")
# Attributes that Keras' callbacks reset in `on_train_begin`, and that a restored training needs.
_KNOWN: dict[type, tuple[str, ...]] = {
    owner: attributes
    for name, attributes in {
        "History": ("history", "epoch"),
        "EarlyStopping": ("best", "wait", "stopped_epoch", "best_weights", "best_epoch"),
        "ReduceLROnPlateau": ("best", "wait", "cooldown_counter"),
        "ModelCheckpoint": ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
        "SwapEMAWeights": ("_ema_weights_in_model",),
        "TensorBoard": ("_global_train_batch", "_previous_epoch_iterations"),
    }.items()
    for owner in _classes(name)
}

# The attribute by which `lockstep.training.callbacks.OnChief` is known, and under which it holds its callback.
ON_CHIEF = "callback_on_chief"


# ---- Which callbacks run on which worker ----


def callback_list(callbacks: Any, model: Model, runtime: Runtime, verbose: Any, **params: Any) -> Any:
    """Returns a `keras.callbacks.CallbackList`, without the writers unless this is the chief."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks = _of_worker(callbacks.callbacks, runtime)
        return callbacks
    _check_tensorboard(callbacks)
    chosen = _of_worker(tree.flatten(callbacks) if callbacks else [], runtime)
    # A progress bar on a terminal or in a notebook, else one line per epoch; silent except on the chief.
    if not runtime.is_chief:
        verbose = 0
    elif verbose == "auto":
        verbose = 1 if sys.stdout.isatty() or "ipykernel" in sys.modules else 2
    return keras.callbacks.CallbackList(chosen, add_progbar=verbose != 0, verbose=verbose, model=model, **params)


def log_directory(callbacks: Any) -> str | None:
    """Returns the directory that the first callback with a `log_dir` writes to, such as `TensorBoard`; or `None`.

    Also on workers whose own list lacks that callback, because the chief alone writes: all keep a record there.
    """
    listed = getattr(callbacks, "callbacks", None) or (tree.flatten(callbacks) if callbacks else [])
    for callback in (getattr(c, ON_CHIEF, c) for c in listed):
        if isinstance(found := getattr(callback, "log_dir", None), (str, os.PathLike)):
            return os.fspath(found)
    return None


def _check_tensorboard(callbacks: Any) -> None:
    """Refuses Keras' own `TensorBoard`, which writes through TensorFlow, where that is not installed."""
    for callback in tree.flatten(callbacks) if callbacks else []:
        callback = getattr(callback, ON_CHIEF, callback)
        is_keras_own = getattr(type(callback), "set_model", None) is keras.callbacks.TensorBoard.set_model
        if is_keras_own and importlib.util.find_spec("tensorflow") is None:
            raise UnsupportedError(
                "keras.callbacks.TensorBoard writes through TensorFlow, which is not installed. Received: "
                f"keras.callbacks.TensorBoard(log_dir={callback.log_dir!r}). Use lockstep.callbacks.TensorBoard, which "
                "has the same arguments and writes the same files."
            )


def _of_worker(callbacks: list[Any], runtime: Runtime) -> list[Any]:
    """Returns the callbacks that run here; on the chief those of `OnChief` themselves, so that Keras' are known."""
    if runtime.is_chief:
        return [getattr(c, ON_CHIEF, c) for c in callbacks]
    return [
        c
        for c in callbacks
        if not isinstance(c, _WRITERS) and not hasattr(c, ON_CHIEF) and not getattr(c, "runs_on_chief_only", False)
    ]


@contextlib.contextmanager
def only_chief_prints(runtime: Runtime) -> Generator[None]:
    """Silences what callbacks print through Keras (`EarlyStopping(verbose=1)`), except on the chief."""
    if runtime.is_chief or not keras.config.is_interactive_logging_enabled():
        yield
        return
    keras.config.disable_interactive_logging()
    try:
        yield
    finally:
        keras.config.enable_interactive_logging()


# ---- Callbacks of batches ----


class BatchListener:
    """Calls callbacks of batches: after each if one of them looks at batches, or as `steps_per_execution` says.

    Args:
        kind: "train", "test" or "predict".
        runtime: The workers. If callbacks look at batches on one of them, all dispatch alike.
        sync_point: Called after callbacks of batches, if any worker has some; by all workers in the same places.
    """

    def __init__(
        self, kind: str, model: Model, callbacks: Any, runtime: Runtime, sync_point: Callable[[], None] | None = None
    ) -> None:
        self.model = model
        # The outputs of the last step, or, before any step, logs.
        self._last: Any = {}
        self._on_begin = getattr(callbacks, f"on_{kind}_batch_begin")
        self._on_end = getattr(callbacks, f"on_{kind}_batch_end")
        # compile(steps_per_execution=...): after how many steps callbacks are called.
        stride = getattr(model, "steps_per_execution", 1)
        self._stride = 1 if stride in ("auto", None) else int(stride)
        looks = self._stride > 1 or any(looks_at_batches(c, kind) for c in callbacks.callbacks)
        # Calls that no callback implements are left out: they would cost more than a small step.
        self._is_heard = type(callbacks) is not keras.callbacks.CallbackList or any(
            _implements(c, kind) for c in callbacks.callbacks
        )
        self._looks = any(runtime.all_gather_object("whether callbacks look at batches", looks))
        self._sync_point = sync_point if self._looks else None
        # The first step of the stride that is under way.
        self._begun: int | None = None

    @property
    def looks_at_steps(self) -> bool:
        """Returns whether a callback must be called after each batch or stride, on any worker."""
        return self._looks

    def max_steps(self, step: int) -> int:
        """Returns how many steps may run before callbacks must be called."""
        return self._stride - step % self._stride if self._looks else _UNLIMITED

    def before(self, step: int, steps: int) -> None:
        """Calls `on_..._batch_begin` where a stride begins."""
        del steps
        if self._begun is None:
            self._begun = step
            if self._is_heard:
                self._on_begin(step)
            if self._sync_point is not None:
                self._sync_point()

    def after(self, step: int, outputs: Outputs) -> bool:
        """Calls `on_..._batch_end` where a stride ends; returns whether to stop."""
        self.collect(outputs)
        if self._looks and (step + 1) % self._stride:
            return False
        return self._end_stride(step)

    def end(self) -> None:
        """Ends a stride that the data cut short."""
        if self._begun is not None:
            self._end_stride(self._begun + self._stride - 1)

    def collect(self, outputs: Outputs) -> None:
        """Takes the outputs of a dispatch."""
        self._last = outputs

    @property
    def logs(self) -> Any:
        """Returns the outputs of the last step."""
        return self._last.last if isinstance(self._last, Outputs) else self._last

    def callback_logs(self) -> Any:
        """Returns the logs that callbacks get."""
        return self.logs

    def should_stop(self) -> bool:
        """Returns whether a callback has asked to stop."""
        raise AssertionError(type(self))

    def _end_stride(self, step: int) -> bool:
        self._begun = None
        if self._is_heard:
            self._on_end(step, self.callback_logs())
        if self._sync_point is not None:
            self._sync_point()
        return self.should_stop()


def looks_at_batches(callback: Callback, kind: str) -> bool:
    """Returns whether a callback must be called after each batch."""
    by_epoch = type(callback) in _BY_FREQUENCY and callback.save_freq == "epoch"
    if type(callback) in _MAY_MISS or by_epoch or not getattr(callback, "looks_at_batches", True):
        return False
    return _implements(callback, kind)


def _implements(callback: Callback, kind: str) -> bool:
    """Returns whether a callback, or its class, overrides a method for batches."""
    names = [f"on_{kind}_batch_begin", f"on_{kind}_batch_end"]
    if kind == "train":  # Their names from before there was more than training; Keras forwards to them.
        names += ["on_batch_begin", "on_batch_end"]
    methods = [(name, getattr(callback, name, None)) for name in names]
    return any(getattr(m, "__func__", m) is not getattr(keras.callbacks.Callback, name, None) for name, m in methods)


# ---- The state of callbacks in a backup ----


def states_of(callbacks: Iterable[Any]) -> dict[str, Any]:
    """Returns the state of each callback by name, without those that have none.

    Keras' callbacks forget everything when a training begins: `_KNOWN` lists what they must keep. Any other callback
    may have `get_state()` and `set_state(state)`.
    """
    states = {name: _state_of(callback) for name, callback in _by_name(callbacks).items()}
    return {name: state for name, state in states.items() if state is not None}


def restore_states(callbacks: Iterable[Any], saved: Mapping[str, Any], is_chief: bool = True) -> None:
    """Restores the state of callbacks; logs callbacks without saved state, and saved state without a callback."""
    here = _by_name(callbacks)
    for name, callback in here.items():
        if name not in saved:
            if _state_of(callback) is not None:
                _log.warning("%s was not there when the backup was made: it begins anew.", name)
        elif callable(getattr(callback, "set_state", None)):
            callback.set_state(saved[name])
        elif isinstance(callback, keras.callbacks.CSVLogger):
            _restore_csv(callback, saved[name])
        else:
            for attribute, value in saved[name].items():
                setattr(callback, attribute, value)
    if is_chief and (unclaimed := sorted(saved.keys() - here.keys())):
        _log.warning("The backup holds the state of %s, which this fit was not given.", ", ".join(unclaimed))


@contextlib.contextmanager
def append_to_files(callbacks: Iterable[Any]) -> Generator[None]:
    """Has callbacks that begin their files in `on_train_begin` append to them."""
    loggers = [c for c in callbacks if isinstance(c, keras.callbacks.CSVLogger)]
    before = [logger.append for logger in loggers]
    for logger in loggers:
        logger.append = True
    try:
        yield
    finally:
        for logger, append in zip(loggers, before, strict=True):
            logger.append = append


def _by_name(callbacks: Iterable[Any]) -> dict[str, Any]:
    """Returns callbacks by the name of the class, with a number from the second one of a class on."""
    names: dict[str, Any] = {}
    for callback in callbacks:
        name, number = type(callback).__name__, 1
        while (key := name if number == 1 else f"{name} {number}") in names:
            number += 1
        names[key] = callback
    return names


def _state_of(callback: Callback) -> Any:
    if callable(getattr(callback, "get_state", None)):
        return callback.get_state()
    if isinstance(callback, keras.callbacks.CSVLogger):
        # The columns, and the length of the file: rows after that are not part of this state.
        file: Any = callback.csv_file
        if file is None or file.closed:
            return {"keys": callback.keys, "size": 0}
        file.flush()
        return {"keys": callback.keys, "size": os.fstat(file.fileno()).st_size}
    names = [n for owner, names in _KNOWN.items() if isinstance(callback, owner) for n in names]
    return {n: getattr(callback, n) for n in names if hasattr(callback, n)} if names else None


def _restore_csv(logger: Any, state: dict[str, Any]) -> None:
    """Drops the rows that were written after the backup: they come again."""
    file, size = logger.csv_file, state["size"]
    length = os.fstat(file.fileno()).st_size
    if length < size:
        _log.warning("%s is shorter than when the backup was made: rows are missing in it.", logger.filename)
    os.ftruncate(file.fileno(), min(size, length))
    logger.append_header = min(size, length) == 0
    logger.keys, logger.writer = state["keys"], None
