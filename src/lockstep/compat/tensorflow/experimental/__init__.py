"""tf.experimental."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _missing

_LAZY = {
    "numpy": "lockstep.compat.tensorflow.experimental.numpy",
}

__all__ = ["numpy"]

__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
