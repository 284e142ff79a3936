"""tf.debugging: checks."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import checks as _checks
from lockstep.compat.tensorflow._ops.checks import *

__all__ = []
__all__ += _checks.__all__

__getattr__ = _getter(__name__)
