"""Callbacks for Keras models, in addition to `keras.callbacks`."""

from __future__ import annotations

from lockstep.callbacks._tensorboard import TensorBoard as TensorBoard

__all__ = ["TensorBoard"]
