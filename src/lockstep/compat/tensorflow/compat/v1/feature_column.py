"""tf.compat.v1.feature_column: lockstep.estimator.feature_column, with TensorFlow 1's arguments."""

from __future__ import annotations

from lockstep.compat.tensorflow import _forward

# TensorFlow 1's forms go first.
_HOMES = ("lockstep.estimator.feature_column._v1", "lockstep.estimator.feature_column")

__all__, __getattr__, __dir__ = _forward.make_module(__name__, *_HOMES)
