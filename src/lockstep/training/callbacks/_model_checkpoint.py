"""`ModelCheckpoint` with files that are whole at any time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import keras

from lockstep._types import Model
from lockstep.checkpoint.internal import atomic as _atomic
from lockstep.errors import ArgumentError, CheckpointError

# The longest first: a file of weights ends with ".h5", too.
_ENDINGS = (".weights.h5", ".keras", ".h5")


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves the model, or its weights, after epochs or batches.

    As `keras.callbacks.ModelCheckpoint`, but a file is never half there: it is written beside its place, synced, and
    renamed, so that the one before stays until then, also if the process is killed or the disk is full. With
    `BackupAndRestore`, the best value so far survives a restart. In a cluster only the chief writes.

    Args:
        filepath: The file, with `{epoch}`, `{batch}` and the names of logs, such as `{val_loss:.2f}`, where they are to
            be filled in. It ends with `.weights.h5` if `save_weights_only`, else with `.keras` (or `.h5`).
        monitor: The log that says which model is the best.
        verbose: 1 to tell of each file.
        save_best_only: Whether a model is saved only if it is better than all before.
        save_weights_only: Whether weights are saved (with the optimizer's variables), or the whole model.
        mode: "min", "max", or "auto" for what the metric says.
        save_freq: `"epoch"`, or after how many batches.
        initial_value_threshold: What the first model must be better than, with `save_best_only`.

    Raises:
        ArgumentError: If `filepath` or `save_freq` is not as described.

    Source: `keras.callbacks.ModelCheckpoint`.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: Any = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        initial_value_threshold: float | None = None,
    ) -> None:
        path = os.fspath(filepath)
        ending = ".weights.h5" if save_weights_only else ".keras"
        if not path.endswith(ending) and (save_weights_only or not path.endswith(".h5")):
            what = "weights" if save_weights_only else "a whole model"
            raise ArgumentError(f"A file of {what} ends with {ending}: received filepath={path!r}. Change its ending.")
        if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1):
            raise ArgumentError(f"save_freq is 'epoch' or a number of batches, at least 1: received {save_freq!r}.")
        frequency: Any = save_freq
        super().__init__(
            path, monitor, verbose, save_best_only, save_weights_only, mode, frequency, initial_value_threshold
        )

    @property
    def looks_at_batches(self) -> bool:
        """Returns whether it must be called after each batch; otherwise one dispatch may run several."""
        return self.save_freq != "epoch"

    def _save_model(self, epoch: int, batch: int | None, logs: Mapping[str, Any] | None) -> None:
        """Saves, if this model is to be; what goes wrong leaves the best value and the file as they were."""
        # Asking for the model brings its variables up to date.
        model, best = self.model, self.best
        # Keras' own method decides what is saved, and under which name; only the writing is another.
        self.set_model(_AtomicSaver(model))
        try:
            super()._save_model(epoch, batch, logs or {})
        except CheckpointError:
            self.best = best
            raise
        finally:
            self.set_model(model)

    def _get_file_path(self, epoch: int, batch: int | None, logs: Mapping[str, Any]) -> str:
        try:
            return super()._get_file_path(epoch, batch, logs)
        except KeyError as error:
            known = ["epoch", *([] if batch is None else ["batch"]), *logs]
            raise ArgumentError(
                f"Names in braces in filepath are {', '.join(known)}. Received: {self.filepath!r}. Leave out what is "
                "not logged, or log it."
            ) from error


class _AtomicSaver:
    """Saves a model to files that appear whole or not at all."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def save(self, path: str, overwrite: bool) -> None:
        self._replace(path, self._model.save, overwrite)

    def save_weights(self, path: str, overwrite: bool) -> None:
        self._replace(path, self._model.save_weights, overwrite)

    def _replace(self, path: str, write: Callable[..., Any], overwrite: bool) -> None:
        try:
            if os.path.isdir(path):
                raise IsADirectoryError("it is a directory; give the name of a file")
            ending = next(e for e in _ENDINGS if path.endswith(e))
            # Of a process that was killed while it wrote: only this one writes here.
            _atomic.remove_leftovers(os.path.dirname(path) or ".", ending)
            with _atomic.replaced(path, ending) as temporary:
                write(temporary, overwrite=overwrite)
        except Exception as error:
            raise CheckpointError(
                f"{path} could not be written: {error}. What was saved before is intact. Free space, or give a file in "
                "a directory that can be written to."
            ) from error
