"""tf.random: random numbers."""

# ruff: noqa: F403, F405

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._ops import random as _random
from lockstep.compat.tensorflow._ops.random import *

_LAZY = {
    "experimental": "lockstep.compat.tensorflow.random.experimental",
}

__all__ = ["experimental"]
__all__ += _random.__all__

__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
