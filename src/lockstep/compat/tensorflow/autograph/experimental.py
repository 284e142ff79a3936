"""tf.autograph.experimental."""

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any as _Any

from lockstep.compat.tensorflow._missing import getter as _getter


def do_not_convert(func: _Callable[..., _Any] | None = None) -> _Any:
    """Returns the function: Python's control flow is never converted.

    Source: tf.autograph.experimental.do_not_convert.
    """
    return do_not_convert if func is None else func


__all__ = ["do_not_convert"]

__getattr__ = _getter(__name__)
