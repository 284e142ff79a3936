"""tf.compat.v1.feature_column: lockstep.estimator.feature_column, with TensorFlow 1's arguments."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _forward, _missing

# TensorFlow 1's forms go first.
_HOMES = ("lockstep.estimator.feature_column._v1", "lockstep.estimator.feature_column")

__all__: list[str] = []
__all__ += _forward.names_of(*_HOMES)

__getattr__ = _forward.getter(__name__, _HOMES)
__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
