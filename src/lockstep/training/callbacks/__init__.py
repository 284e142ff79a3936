"""Callbacks for Keras models, in addition to `keras.callbacks`."""

from __future__ import annotations

from lockstep.training.callbacks._backup_and_restore import BackupAndRestore as BackupAndRestore
from lockstep.training.callbacks._mlflow import MLflow as MLflow
from lockstep.training.callbacks._model_checkpoint import ModelCheckpoint as ModelCheckpoint
from lockstep.training.callbacks._non_finite import NonFinite as NonFinite
from lockstep.training.callbacks._on_chief import OnChief as OnChief
from lockstep.training.callbacks._prometheus import Prometheus as Prometheus
from lockstep.training.callbacks._run_report import RunReport as RunReport
from lockstep.training.callbacks._tensorboard import TensorBoard as TensorBoard
from lockstep.training.callbacks._wandb import WeightsAndBiases as WeightsAndBiases

__all__ = [
    "BackupAndRestore",
    "MLflow",
    "ModelCheckpoint",
    "NonFinite",
    "OnChief",
    "Prometheus",
    "RunReport",
    "TensorBoard",
    "WeightsAndBiases",
]
