"""tf.strings: functions of text, which is bytes in arrays of objects."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import strings as _strings
from lockstep.compat.tensorflow._ops.strings import *

__all__: list[str] = []
__all__ += _strings.__all__

__getattr__ = _getter(__name__)
