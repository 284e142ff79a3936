"""tf.dtypes: types of elements."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow import _dtypes
from lockstep.compat.tensorflow._dtypes import *
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops.create import cast as cast
from lockstep.compat.tensorflow._ops.elementwise import complex as complex
from lockstep.compat.tensorflow._ops.elementwise import saturate_cast as saturate_cast

__all__ = ["cast", "complex", "saturate_cast"]
__all__ += _dtypes.__all__

__getattr__ = _getter(__name__)
