"""`tf.keras.mixed_precision.experimental`, the names of TensorFlow 2.0 to 2.3."""

from __future__ import annotations

from keras.mixed_precision import LossScaleOptimizer as LossScaleOptimizer
from keras.mixed_precision import Policy as Policy
from keras.mixed_precision import global_policy as global_policy
from keras.mixed_precision import set_global_policy

__all__ = ["LossScaleOptimizer", "Policy", "global_policy", "set_policy"]

set_policy = set_global_policy
