"""Backups of a training, from which it goes on as if nothing had happened."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Literal

import keras

from lockstep.checkpoint import CheckpointStore, load_newest
from lockstep.checkpoint.internal import of_tensorflow, remove_all
from lockstep.errors import ArgumentError, CheckpointError, UnsupportedError

_log = logging.getLogger("lockstep")


class BackupAndRestore(keras.callbacks.Callback):
    """Keeps backups of a training while it runs. `fit` goes on with the newest one, exactly where it was taken.

    A backup holds all that the training depends on: weights, the optimizer's variables, metrics, seeds of layers, the
    random states of Python, numpy and Keras, epoch and batch, the position in the data, the history, and what callbacks
    remember (`EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint`, `CSVLogger`, `SwapEMAWeights`, `TensorBoard`, and
    any with methods `get_state()` and `set_state(state)`, of JSON and arrays). So a training that is killed and
    started again, with the same program, ends with the weights and the history of one that was not: bit for bit on the
    same layout, and on another number of workers and devices as close as any two layouts are.

    The model must belong to a strategy. With several workers the chief alone writes and reads; all go on with what it
    finds. Files are written in the background, appear whole or not at all, and hold checksums: a damaged one is passed
    over, with a warning, for the one before. When the job is asked to end (SIGTERM), a backup is made of the step that
    all tasks end with, whatever `save_freq` is.

    Args:
        backup_dir: Where; nothing else belongs there.
        save_freq: `"epoch"`: at the end of each. A number: after so many batches, counted from the beginning of
            training, over epochs. `False`: only when the job is asked to end.
        double_checkpoint: As in Keras, whether at least two backups are kept, which `keep` says already.
        delete_checkpoint: Whether the backups are removed when training has ended well.
        keep: How many backups are kept, the newest ones; at least 1.
        strict: Whether a damaged backup is an error, instead of passing it over for the one before.
        on_save_error: What happens when a backup cannot be written, such as on a full disk. `"raise"`: training stops
            at the next step. `"warn"`: the log says so, and training goes on. Earlier backups are intact either way.

    Raises:
        ArgumentError: If an argument is not as described.

    Source: `keras.callbacks.BackupAndRestore`, whose backups are of epochs, and hold neither data nor callbacks.
    """

    # What the names of its files begin with.
    basename = "backup"

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: int | Literal["epoch"] = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
        *,
        keep: int = 2,
        strict: bool = False,
        on_save_error: Literal["raise", "warn"] = "raise",
    ) -> None:
        super().__init__()
        if not backup_dir:
            raise ArgumentError(f"backup_dir is the path of a directory: received {backup_dir!r}.")
        is_count = type(save_freq) is int and save_freq > 0
        if save_freq != "epoch" and save_freq is not False and not is_count:
            raise ArgumentError(
                "save_freq is 'epoch', a number of batches, or False to save only when the job is asked to end: "
                f"received {save_freq!r}."
            )
        least = 2 if double_checkpoint else 1
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < least:  # pyright: ignore[reportUnnecessaryIsInstance]
            why = ", with double_checkpoint" if double_checkpoint else ""
            raise ArgumentError(f"keep is a number of backups, at least {least}{why}: received {keep!r}.")
        if on_save_error not in ("raise", "warn"):
            raise ArgumentError(f"on_save_error is 'raise' or 'warn': received {on_save_error!r}.")
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq: Any = save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self.keep = keep
        self.strict = strict
        self.on_save_error = on_save_error
        self._run: Any = None
        self._store: CheckpointStore | None = None
        # The step of the last backup, and whether the epoch had ended then.
        self._saved: tuple[int, bool] | None = None

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Refuses a model that no strategy trains."""
        if self._run is None:
            raise UnsupportedError(
                "BackupAndRestore needs a model that belongs to a strategy, whose fit can say where it stands. "
                "Received: a model of plain Keras. Create or compile it in a scope: with "
                "lockstep.distribute.MirroredStrategy().scope(): ..."
            )

    # ---- Called by `lockstep._engine.keras.recovery.Recovery` ----

    def attach_run(self, run: Any) -> None:
        """Begins a training."""
        self._run, self._saved = run, None
        if run.is_chief:
            of_tensorflow.refuse_in(self.backup_dir, "It holds no position in the data, from which a backup goes on.")
        self._store = CheckpointStore(self.backup_dir, self.basename, self.keep) if run.is_chief else None

    def facts(self) -> Any:
        """Returns the settings that must be equal on all workers."""
        return {"save_freq": self.save_freq, "on_save_error": self.on_save_error}

    def load(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Reads the newest backup."""
        found = load_newest(self.backup_dir, self.strict)
        if found is None:
            return None
        _log.info("Restoring the backup %s.", found.prefix)
        return found.arrays, found.extra

    def max_batches(self, batches: int) -> int | None:
        """Returns after how many more batches the next backup is due."""
        return self.save_freq - batches % self.save_freq if self._counts_batches else None

    def on_batches(self, before: int, batches: int) -> None:
        """Saves, if that many batches have passed."""
        # By crossing: several steps of one dispatch may pass a multiple without ending at it.
        if self._counts_batches and batches // self.save_freq > before // self.save_freq:
            self._save()

    def on_epoch(self) -> None:
        """Saves, if epochs are saved."""
        if self.save_freq == "epoch":
            self._save()

    def on_preempted(self) -> None:
        """Saves what there is not yet a backup of, and waits until it is on the disk."""
        # A backup that is restored by half is still the newest one.
        if self._run.is_restored and self._saved != self._now():
            self._save()
        self._require_last()

    def check(self) -> None:
        """Raises what a save has failed with, or warns of it."""
        if self._store is not None:
            self._heed(self._store.check)

    def finish(self, is_done: bool) -> None:
        """Waits for what is being written; when training has ended well, removes the backups if it is to."""
        try:
            if is_done:
                self._require_last()
        finally:
            # Let go of first: after an error, too, the callback may serve another `fit`.
            store, self._store, self._run = self._store, None, None
            if store is not None:
                try:
                    # Before the removal: the writer's thread could bring a backup back.
                    store.close()
                    if is_done and self.delete_checkpoint:
                        remove_all(self.backup_dir, self.basename)
                except (CheckpointError, OSError) as error:
                    # The error that ended the training is the root cause; and one that ended well has lost nothing.
                    _log.error("%s", error)

    @property
    def _counts_batches(self) -> bool:
        return isinstance(self.save_freq, int) and self.save_freq is not False

    def _now(self) -> tuple[int, bool]:
        progress = self._run.progress
        return progress.total, progress.begun

    def _save(self) -> None:
        """Copies the state of training, and writes it in the background; a collective call."""
        # Before the next copy is made: there is memory for one.
        self._require_last()
        if not self._run.is_sound():
            return
        # On all workers: gathering sharded state and positions is collective.
        step, arrays, extra = self._run.snapshot()
        self._saved = self._now()
        if self._store is not None:
            self._store.save(step, arrays, extra)

    def _require_last(self) -> None:
        """Waits for the backup that the chief is writing; raises its error on all workers."""
        error: CheckpointError | None = None
        try:
            if self._store is not None:
                self._heed(self._store.wait)
        except CheckpointError as failure:
            error = failure
        self._run.require_saved(error)

    def _heed(self, work: Any) -> None:
        """Does work that may raise the error of a save, which `on_save_error` may make a warning."""
        try:
            work()
        except CheckpointError as error:
            if self.on_save_error == "raise":
                raise
            _log.warning("Training goes on without a new backup. %s", error)
