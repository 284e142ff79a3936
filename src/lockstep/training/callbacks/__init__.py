"""Callbacks for Keras models, in addition to `keras.callbacks`."""

from __future__ import annotations

from lockstep.training.callbacks._backup_and_restore import BackupAndRestore as BackupAndRestore
from lockstep.training.callbacks._model_checkpoint import ModelCheckpoint as ModelCheckpoint
from lockstep.training.callbacks._non_finite import NonFinite as NonFinite
from lockstep.training.callbacks._on_chief import OnChief as OnChief
from lockstep.training.callbacks._tensorboard import TensorBoard as TensorBoard

__all__ = ["BackupAndRestore", "ModelCheckpoint", "NonFinite", "OnChief", "TensorBoard"]
