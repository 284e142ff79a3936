"""`tf.keras.callbacks.experimental`."""

from __future__ import annotations

from lockstep.compat.tensorflow.keras._callbacks import BackupAndRestore as BackupAndRestore

__all__ = ["BackupAndRestore"]
