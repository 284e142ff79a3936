"""tf.config.optimizer: XLA compiles everything."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow.config._settings import get_jit as get_jit
from lockstep.compat.tensorflow.config._settings import set_jit as set_jit

__all__ = ["get_jit", "set_jit"]

__getattr__ = _getter(__name__)
