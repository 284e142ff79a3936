"""tf.config: devices, and the few settings that JAX has, too."""

# ruff: noqa: F403, F405

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow.config import _devices, _settings
from lockstep.compat.tensorflow.config._devices import *
from lockstep.compat.tensorflow.config._settings import *

_LAZY = {name: f"{__name__}.{name}" for name in ("experimental", "optimizer", "threading")}

__all__ = ["experimental", "optimizer", "threading"]
__all__ += _devices.__all__
__all__ += _settings.__all__

__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
