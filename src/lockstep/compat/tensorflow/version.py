"""tf.version: which TensorFlow the names follow."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter

VERSION = "2.15.0"
GIT_VERSION = "lockstep"
COMPILER_VERSION = "lockstep"

__all__ = ["COMPILER_VERSION", "GIT_VERSION", "VERSION"]

__getattr__ = _getter(__name__)
