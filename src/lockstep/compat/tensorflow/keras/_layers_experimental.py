"""`tf.keras.layers.experimental`: layers that have since become plain ones."""

from __future__ import annotations

import keras

from lockstep.compat.tensorflow.keras._layers import BatchNormalization

__all__ = ["EinsumDense", "SyncBatchNormalization"]

EinsumDense = keras.layers.EinsumDense
# Statistics are those of the global batch already.
SyncBatchNormalization = BatchNormalization
