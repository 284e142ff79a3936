"""tf.compat.v1.losses: lockstep.estimator.losses itself."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _forward, _missing

_HOME = "lockstep.estimator.losses"

__all__: list[str] = []
__all__ += _forward.names_of(_HOME)

__getattr__ = _forward.getter(__name__, (_HOME,))
__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
