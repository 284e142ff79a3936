"""Backups of a training under way, and their exact restoration: contents, and what travels from the chief to all.

A callback (`lockstep.training.callbacks.BackupAndRestore`) decides when to save, and owns the files; `Recovery` knows
what belongs into them. Saving and restoring are collective, because a position in the data may consist of one part per
worker; only the chief has files.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import jax
import numpy as np

from lockstep._engine.input import broadcast, random_state
from lockstep._engine.input.feed import Feed
from lockstep._engine.keras import callbacks as callbacks_
from lockstep._engine.keras.agreement import TrainState
from lockstep._engine.runtime import failure, progress
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import Outputs
from lockstep._engine.step.protocol import Program
from lockstep._types import Model
from lockstep.errors import ArgumentError, CheckpointError

_log = logging.getLogger("lockstep")

_VERSION = 1
_RESIDUALS = "residuals/"
_SAVE_FAILED = "a backup could not be written"
# What validation and callbacks at the end of an epoch may change, and a restart in between must not see changed.
_CHANGING = ("metrics_variables/", "non_trainable_variables/")
_STATES = ("trainable_variables/", "non_trainable_variables/", "optimizer_variables/", "metrics_variables/", "state/")

Arrays = dict[str, Any]


class BackupCallback(Protocol):
    """A callback that keeps backups of a training. Its answers must be equal on all workers, except `load`'s."""

    def attach_run(self, run: Recovery) -> None:
        """Begins a training that can be saved."""
        ...

    def facts(self) -> Any:
        """Returns the settings that must be equal on all workers, as JSON."""
        ...

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Returns the arrays and the JSON of the newest backup; called on the chief."""
        ...

    def max_batches(self, batches: int) -> int | None:
        """Returns how many batches may pass until the next save, `batches` after training began; `None`: any number."""
        ...

    def on_batches(self, before: int, batches: int) -> None:
        """Saves if one is due between these two counts of batches."""
        ...

    def on_epoch(self) -> None:
        """Saves if one is due at the end of an epoch, after all callbacks."""
        ...

    def check(self) -> None:
        """Raises the error of a save in the background; called on the chief."""
        ...

    def finish(self, is_done: bool) -> None:
        """Ends the training; `is_done` if without an error."""
        ...


class Validation(Protocol):
    """Validation data whose position is part of a backup.

    Attributes:
        position: Where the data stand.
    """

    position: Any

    def saved_position(self) -> Any:
        """Returns the position, or `None` before the first read; a collective call."""
        ...


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        epoch: The epoch that is under way, or that comes next.
        begun: Whether `on_epoch_begin` was called for it.
        batches: Batches of it that were trained on.
        trained: Whether those are all of its batches, so that the validation comes next.
        total: Batches since training began.
        stopped: Whether training ends here, because a callback asked for it.
        logs: The outputs of the last step: `Outputs`, or a pytree of arrays.
    """

    epoch: int = 0
    begun: bool = False
    batches: int = 0
    trained: bool = False
    total: int = 0
    stopped: bool = False
    logs: Any = field(default_factory=dict)


class Recovery:
    """Saves one call of `fit`, and restores it to the same example.

    Args:
        validation: The validation data, if their position is to be saved.

    Raises:
        ArgumentError: If several callbacks keep backups.
    """

    def __init__(
        self,
        model: Model,
        state: TrainState,
        feed: Feed,
        program: Program,
        callbacks: Any,
        runtime: Runtime,
        validation: Validation | None = None,
    ) -> None:
        self._model = model
        self._state = state
        self._feed = feed
        self._program = program
        self._callbacks: list[Any] = callbacks.callbacks
        self._runtime = runtime
        self._validation = validation
        keepers: list[Any] = [c for c in self._callbacks if hasattr(c, "attach_run")]
        if len(keepers) > 1:
            raise ArgumentError(
                f"One callback keeps the backups of a training. Received: {len(keepers)} of them. Keep one "
                "BackupAndRestore; for more copies of the model there is ModelCheckpoint."
            )
        self._backup: BackupCallback | None = keepers[0] if keepers else None
        # The newest backup (on the chief), what all workers have of it, and the chief's message to them.
        self._loaded: tuple[Arrays, dict[str, Any]] | None = None
        self._restored: dict[str, Any] | None = None
        self._callback_arrays: broadcast.Arrays = {}
        self._message: np.ndarray[Any, Any] | None = None
        self._applies_again = False
        self._failure: CheckpointError | None = None
        # The position of the data when training was interrupted; and the state after the last step of an epoch, before
        # the validation and the callbacks that follow change it.
        self._interrupted: dict[str, Any] | None = None
        self._trained: tuple[Arrays, dict[str, Any]] | None = None
        self.progress = Progress()

    @property
    def is_chief(self) -> bool:
        """Returns whether this worker has the files."""
        return self._runtime.is_chief

    @property
    def is_restored(self) -> bool:
        """Returns whether a backup that was read is restored completely."""
        return not self._applies_again

    def facts(self) -> Any:
        """Returns the settings of backups, which must be equal on all workers."""
        return None if self._backup is None else self._backup.facts()

    # ---- Restoring ----

    @contextlib.contextmanager
    def read_backup(self) -> Generator[None]:
        """Reads the newest backup, and encloses `on_train_begin`, in which callbacks would begin their files anew."""
        if self._backup is not None:
            self._backup.attach_run(self)
            self._loaded = self._backup.load() if self.is_chief else None
            if self._loaded is not None:
                progress.mark("restored")
                if self._loaded[1].get("version") != _VERSION:
                    raise CheckpointError(
                        f"A backup must have been written by BackupAndRestore (version {_VERSION}). Received: a "
                        "checkpoint that holds something else. Give BackupAndRestore a directory of its own."
                    )
        with callbacks_.append_to_files(self._callbacks if self._loaded else ()):
            yield

    def message_size(self) -> int | None:
        """Returns the size in bytes of the message that `resume` broadcasts, on the chief; `None` without a backup."""
        if self._loaded is None:
            return None
        arrays, extra = self._loaded
        # Variables and residuals have ways of their own to the other workers.
        others = {k: v for k, v in arrays.items() if not k.startswith((*_STATES, _RESIDUALS))}
        self._message = broadcast.to_bytes(extra, others)
        return len(self._message)

    def resume(self, epoch: int, size: int | None) -> Progress:
        """Restores the chief's backup on all workers; a collective call.

        Args:
            epoch: The first epoch without a backup.
            size: The chief's `message_size`.

        Returns:
            Where training goes on.

        Raises:
            CheckpointError: If the backup does not fit the model or the data.
        """
        self.progress = Progress(epoch)
        if size is None:
            return self.progress
        extra, self._callback_arrays = broadcast.from_chief(self._program, self.is_chief, self._message, size)
        self._restored = extra
        self.progress = Progress(**unpack(extra["progress"], self._callback_arrays))
        # Callbacks act once more in on_epoch_begin of an epoch that had begun. So all is restored again after that,
        # and the data, which can be opened once, only then.
        self._applies_again = self.progress.begun
        self._apply(with_data=not self.progress.begun)
        if self.is_chief:
            _log.info(
                "Training goes on in epoch %d, after %d of its batches.", self.progress.epoch + 1, self.progress.batches
            )
        return self.progress

    def resume_epoch(self) -> None:
        """Restores once more, after `on_epoch_begin` of an epoch that was interrupted."""
        if self._applies_again:
            self._apply(with_data=True)
        self._restored, self._loaded, self._applies_again = None, None, False

    def _apply(self, with_data: bool) -> None:
        extra = self._restored
        assert extra is not None
        arrays = self._loaded[0] if self._loaded is not None else {}
        if self._loaded is not None:
            self._state.assign({k: v for k, v in arrays.items() if k.startswith(_STATES)})
        # Metrics, too: the epoch goes on in the middle.
        if not self._runtime.is_alone:
            self._state.follow_chief(everything=True)
        residuals = {k.removeprefix(_RESIDUALS): v for k, v in arrays.items() if k.startswith(_RESIDUALS)}
        self._program.restore_extra_state(residuals)
        saved = unpack(extra["callbacks"], self._callback_arrays)
        callbacks_.restore_states(self._callbacks, saved, self.is_chief)
        # After the callbacks, whose set_state may draw.
        random_state.restore(extra["random"])
        if not with_data:
            return
        try:
            self._feed.resume(extra["data"])
        except ArgumentError as error:
            raise CheckpointError(
                f"The backup is of a training with other data: {error} Or begin anew in another directory."
            ) from error
        if self._validation is not None:
            self._validation.position = extra["validation"]

    # ---- While training runs ----

    def begin_epoch(self, epoch: int) -> Progress:
        """Returns where an epoch begins, or goes on."""
        if self.progress.epoch != epoch or not self.progress.begun:
            self.progress = Progress(epoch, begun=True, total=self.progress.total)
        return self.progress

    def max_steps(self, step: int) -> int | None:
        """Returns how many steps may run, from `step` of this epoch on, before a save is due."""
        if self._backup is None:
            return None
        return self._backup.max_batches(self.progress.total + step - self.progress.batches)

    def check(self) -> None:
        """Raises the error of a failed save, on all workers after the same step if they exchange messages about input.

        With arrays in memory they do not: then the chief fails, and the others because of it.
        """
        if self._backup is None:
            return
        try:
            if self.is_chief:
                self._backup.check()
        except CheckpointError as error:
            if self._runtime.is_alone or self._feed.source.in_memory:
                raise
            self._failure = error
            self._feed.broadcast(_SAVE_FAILED)
        if not self._runtime.is_alone and self._feed.has_received(_SAVE_FAILED):
            self.require_saved(None)

    def advance(self, batches: int, logs: Any) -> None:
        """Notes how many batches of this epoch were trained on, and the outputs of the last step."""
        before = self.progress
        self.progress = replace(before, batches=batches, total=before.total + batches - before.batches, logs=logs)

    def on_batches(self, before: int) -> None:
        """Saves if it is due, after all callbacks were called for the batches from `before` of this epoch on."""
        if self._backup is not None:
            passed = self.progress.batches - before
            with self._runtime.preemption.progress.being(progress.SAVING):
                self._backup.on_batches(self.progress.total - passed, self.progress.total)

    def on_epoch(self, epoch: int, stopped: bool) -> None:
        """Saves if it is due at the end of an epoch, after all callbacks; `stopped` if training ends with it."""
        # The epoch is over: a save from here on has the state as it is.
        self._trained = None
        self.progress = Progress(epoch + 1, total=self.progress.total, stopped=stopped)
        if self._backup is not None:
            with self._runtime.preemption.progress.being(progress.SAVING):
                self.require_saved(None)
                self._backup.on_epoch()

    def note_data_position(self) -> None:
        """Notes where the data stand, as long as they are open, for a save when training ends between two steps."""
        if self._backup is not None:
            self._interrupted = self._feed.position(self.progress.batches)

    def end_steps(self, logs: Any) -> None:
        """Notes the state after the last step of an epoch, for a save while the validation is under way."""
        self.progress = replace(self.progress, trained=True, logs=logs)
        if self._backup is not None:
            # Copies: the steps of the validation donate the buffers of metrics.
            arrays: Arrays = {k: np.array(v) for k, v in self._state.arrays(_CHANGING).items()}
            self._trained = arrays, self._process_state(arrays)

    def finish(self, is_done: bool) -> None:
        """Ends the training."""
        if self._backup is not None:
            self._backup.finish(is_done)

    # ---- Saving ----

    def is_sound(self) -> bool:
        """Returns whether all steps so far count; a collective call.

        After a step that was not finite, and for which training is about to end, steps were undone on the devices
        before Python knows of it: the data stand after them, and the weights before.
        """
        reports: Any = getattr(self._program, "reports", None)
        if reports is None:
            return True
        reports.flush()
        return reports.ended is None

    def snapshot(self) -> tuple[int, Arrays, dict[str, Any]]:
        """Returns the number of batches so far, and all that training depends on as arrays and JSON.

        A collective call. The next step may change the arrays.
        """
        # A process that was suspended, and given up by the others, must not overwrite what they have saved since.
        self._runtime.check_current()
        arrays: Arrays = dict(self._state.arrays())
        arrays.update({f"{_RESIDUALS}{k}": v for k, v in self._program.extra_state().items()})
        if self._trained is None:
            process = self._process_state(arrays)
        else:
            before, process = self._trained
            arrays.update(before)
        logs = self.progress.logs
        logs = jax.tree.map(np.asarray, logs.last if isinstance(logs, Outputs) else logs)
        extra = {
            "version": _VERSION,
            "progress": pack({**vars(self.progress), "logs": logs}, "progress", arrays),
            "data": self._interrupted or self._feed.position(self.progress.batches),
            "validation": None if self._validation is None else self._validation.saved_position(),
            **process,
        }
        return self.progress.total, arrays, extra

    def _process_state(self, arrays: Arrays) -> dict[str, Any]:
        """Returns the state that is neither in variables nor in the data; puts its arrays into `arrays`."""
        states = callbacks_.states_of(self._callbacks)
        return {"callbacks": pack(states, "callbacks", arrays), "random": random_state.snapshot()}

    def require_saved(self, error: CheckpointError | None) -> None:
        """Raises the chief's error, if it has one, on all workers; a collective call."""
        error = error or self._failure
        message = self._runtime.all_gather_object("the backup", str(error) if error is not None else None)[0]
        if message is not None:
            raise failure.mark_agreed(error or CheckpointError(f"{self._runtime.tasks[0]}: {message}"))


# ---- The state of callbacks as JSON and arrays ----

_ARRAY, _TUPLE = "__array__", "__tuple__"


def pack(value: Any, path: str, arrays: Arrays) -> Any:
    """Returns `value` as JSON; arrays, and numpy's numbers, which JSON would change, go into `arrays`.

    Args:
        value: JSON, tuples and arrays.
        path: Its name in errors, and in `arrays`.
        arrays: Takes the arrays.

    Raises:
        ArgumentError: If there is anything else in it.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) and np.dtype(value.dtype).kind != "O":
        arrays[path] = value
        return {_ARRAY: path}
    if isinstance(value, (list, tuple)):
        items = [pack(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping) and all(isinstance(k, str) and not k.startswith("__") for k in value):
        return {k: pack(v, f"{path}/{k}", arrays) for k, v in value.items()}
    raise ArgumentError(
        f"The state of a callback is kept as JSON and arrays: dicts with keys of text, lists, text, numbers, arrays. "
        f"Received: {value!r:.80} of type {type(value).__name__} in {path}. Let get_state() return such values."
    )


def unpack(value: Any, arrays: Mapping[str, Any]) -> Any:
    """Returns the value that `pack` was given, with arrays of numpy."""
    if isinstance(value, list):
        return [unpack(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        array = np.asarray(arrays[value[_ARRAY]])
        return array if array.ndim else array[()]
    if _TUPLE in value:
        return tuple(unpack(v, arrays) for v in value[_TUPLE])
    return {k: unpack(v, arrays) for k, v in value.items()}
