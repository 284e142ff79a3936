"""tf.strings: functions of text, which is bytes in arrays of objects."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import ngrams as _ngrams
from lockstep.compat.tensorflow._ops import strings as _strings
from lockstep.compat.tensorflow._ops import unicode as _unicode
from lockstep.compat.tensorflow._ops.ngrams import *
from lockstep.compat.tensorflow._ops.strings import *
from lockstep.compat.tensorflow._ops.unicode import *

__all__: list[str] = []
__all__ += _ngrams.__all__
__all__ += _strings.__all__
__all__ += _unicode.__all__

__getattr__ = _getter(__name__)
