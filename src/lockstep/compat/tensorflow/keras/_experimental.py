"""`tf.keras.experimental`: schedules that have long been in `optimizers.schedules`."""

from __future__ import annotations

from keras.optimizers.schedules import CosineDecay as CosineDecay
from keras.optimizers.schedules import CosineDecayRestarts as CosineDecayRestarts

__all__ = ["CosineDecay", "CosineDecayRestarts"]
