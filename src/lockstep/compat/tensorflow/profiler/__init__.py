"""tf.profiler: profiles by jax.profiler."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _missing

_LAZY = {"experimental": f"{__name__}.experimental"}

__all__ = ["experimental"]

__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
