"""tf.autograph.experimental."""

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any as _Any

from lockstep.compat.tensorflow._functions.conversion import without_conversion as _without_conversion
from lockstep.compat.tensorflow._missing import getter as _getter


def do_not_convert(func: _Callable[..., _Any] | None = None) -> _Any:
    """Returns a function that calls this one, and what it calls, without converting Python's conditions and loops.

    Source: tf.autograph.experimental.do_not_convert.
    """
    return do_not_convert if func is None else _without_conversion(func)


__all__ = ["do_not_convert"]

__getattr__ = _getter(__name__)
