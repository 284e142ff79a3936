"""`tf.keras.callbacks`: callbacks that write, with the paths and arguments of Keras 2.

Those that only the chief of a cluster runs derive from Keras' own, by which lockstep knows them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import keras

from lockstep.checkpoint.internal import of_tensorflow as _of_tensorflow
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training.callbacks import BackupAndRestore as _BackupAndRestore
from lockstep.training.callbacks import TensorBoard as TensorBoard

__all__ = ["BackupAndRestore", "LearningRateScheduler", "ModelCheckpoint", "ReduceLROnPlateau", "TensorBoard"]


def _rename_rate(logs: dict[str, float] | None) -> None:
    # Programs read history["lr"].
    if logs and "learning_rate" in logs:
        logs["lr"] = logs.pop("learning_rate")


class LearningRateScheduler(keras.callbacks.LearningRateScheduler):
    """Sets the learning rate of each epoch by a function, and logs it as `lr`.

    Source: `tf.keras.callbacks.LearningRateScheduler`.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Logs the learning rate."""
        super().on_epoch_end(epoch, logs)
        _rename_rate(logs)


class ReduceLROnPlateau(keras.callbacks.ReduceLROnPlateau):
    """Lowers the learning rate when a quantity no longer improves, and logs it as `lr`.

    Source: `tf.keras.callbacks.ReduceLROnPlateau`.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Looks at the quantity, and logs the learning rate."""
        super().on_epoch_end(epoch, logs)
        _rename_rate(logs)


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves the model, or its weights, while it trains.

    Args:
        filepath: Where. Fields in braces (`{epoch:02d}`, `{val_loss:.2f}`) are filled. What `model.save`, or
            `model.save_weights`, takes: a directory, a `.keras` file, HDF5; for weights also a prefix (`cp.ckpt`).
        monitor: The quantity that tells which model is best.
        verbose: 1 to say when it saves.
        save_best_only: Whether to save only what is better than everything before.
        save_weights_only: Whether to save weights instead of a whole model.
        mode: `"min"`, `"max"`, or `"auto"`: by the name of the quantity.
        save_freq: `"epoch"`, or after how many batches.
        options: Must be None; what TensorFlow's options can say has no meaning here.
        initial_value_threshold: What the first model must be better than.
        period: After how many epochs, if `save_freq` is `"epoch"`.
        load_weights_on_restart: Must be false: `BackupAndRestore` does that.

    Source: `tf.keras.callbacks.ModelCheckpoint`.

    Raises:
        ArgumentError: If `period` is not positive, or `options` is given.
        UnsupportedError: If `load_weights_on_restart` is set.
        CheckpointError: In `fit`, if it saves under a prefix in a directory that holds checkpoints of TensorFlow.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        options: object = None,
        initial_value_threshold: float | None = None,
        *,
        period: int = 1,
        load_weights_on_restart: bool = False,
    ) -> None:
        _check(options, period, load_weights_on_restart)
        # Keras refuses most names; what they mean here, model.save and model.save_weights know.
        super().__init__(
            "any.weights.h5" if save_weights_only else "any.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=save_best_only,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
            initial_value_threshold=initial_value_threshold,
        )
        self.filepath = os.fspath(filepath)
        # Keras 2 counted epochs since the last save; save_freq="epoch" of Keras 3 saves after each one.
        self.period = period
        self._epochs_since_saving = 0

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Refuses to save over a checkpoint of TensorFlow, before it has trained for nothing."""
        super().on_train_begin(logs)
        if self.save_weights_only and not self.filepath.endswith((".h5", ".hdf5", ".keras")):
            # Here, not in the constructor: the directory may be made after it. Names with the epoch in them are looked
            # at when they are known.
            _of_tensorflow.refuse_at(self.filepath)

    def _save_model(self, epoch: int, batch: int | None, logs: dict[str, float] | None) -> None:
        if batch is None:
            self._epochs_since_saving += 1
            # batch is None at the end of an epoch.
            if self._epochs_since_saving < self.period:
                return
            self._epochs_since_saving = 0
        super()._save_model(epoch=epoch, batch=batch, logs=logs)


def _check(options: object, period: Any, load_weights_on_restart: bool) -> None:
    if options is not None:
        raise ArgumentError(f"ModelCheckpoint takes no options: received {options!r}. Leave options= out.")
    if isinstance(period, bool) or not isinstance(period, int) or period < 1:
        raise ArgumentError(f"period is a positive number of epochs: received {period!r}.")
    if load_weights_on_restart:
        raise UnsupportedError(
            "ModelCheckpoint does not restore: load_weights_on_restart=True was given. Use callbacks.BackupAndRestore, "
            "or model.load_weights(latest_checkpoint(directory)) before fit."
        )


class BackupAndRestore(_BackupAndRestore):
    """Backs training up, and continues from there in the next run.

    It is exact: `lockstep.training.callbacks.BackupAndRestore` says what a backup holds. A model that Keras' own loop
    trains, because it was made outside of TensorFlow's names, is backed up as Keras does.

    Args:
        backup_dir: Where; no other callback may write there.
        save_freq: `"epoch"`, after how many batches, or False: only when the job is asked to end (SIGTERM).
        delete_checkpoint: Whether to delete the backup when training has ended.
        save_before_preemption: Whether to save when the job is asked to end; done in any case, but by Keras.

    Source: `tf.keras.callbacks.BackupAndRestore`.

    Raises:
        ArgumentError: If an argument is not as described.
        UnsupportedError: In `fit`, if a model that Keras' own loop trains is to be saved when the job is asked to end.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: Any = "epoch",
        delete_checkpoint: bool = True,
        save_before_preemption: bool = False,
    ) -> None:
        super().__init__(backup_dir, save_freq, delete_checkpoint=delete_checkpoint)
        self.save_before_preemption = save_before_preemption
        self._plain: Any = None

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Restores a model that Keras' own loop trains; others are by now."""
        # `_run` is set by lockstep's fit, which backs up by itself.
        self._plain = None if self._run is not None else self._make_keras_callback()
        if self._plain is not None:
            self._plain.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Passes the event on to Keras' own callback, for a model that Keras' own loop trains."""
        if self._plain is not None:
            self._plain.on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Passes the event on to Keras' own callback, for a model that Keras' own loop trains."""
        if self._plain is not None:
            self._plain.on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Passes the event on to Keras' own callback, for a model that Keras' own loop trains."""
        if self._plain is not None:
            self._plain.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """Passes the event on to Keras' own callback, for a model that Keras' own loop trains."""
        if self._plain is not None:
            self._plain.on_train_end(logs)

    def _make_keras_callback(self) -> Any:
        if self.save_before_preemption or self.save_freq is False:
            raise UnsupportedError(
                "save_before_preemption, and save_freq=False, need lockstep's loop. Received: a model of plain Keras. "
                "Create it with tf.keras, or in a scope: with tf.distribute.MirroredStrategy().scope(): ..., or give "
                "save_freq= a number of batches."
            )
        callback = keras.callbacks.BackupAndRestore(self.backup_dir, self.save_freq, False, self.delete_checkpoint)
        # Keras calls these for the callbacks of fit; this one is not in its list.
        callback.set_model(self.model)
        callback.set_params(self.params)
        return callback
