"""tf.autograph: Python's control flow is what runs, so that there is little to say about it."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _missing

_LAZY = {
    "experimental": "lockstep.compat.tensorflow.autograph.experimental",
}

__all__ = ["experimental"]

__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
