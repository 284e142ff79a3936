"""States as something that JSON can hold."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

_INTEGERS = "int64, zlib, base64"


def encoded(state: Any) -> Any:
    """Returns a state with integer arrays as text."""
    if isinstance(state, np.ndarray):
        packed = base64.b64encode(zlib.compress(np.ascontiguousarray(state, "<i8").tobytes(), 1)).decode()
        return {_INTEGERS: packed}
    if isinstance(state, dict):
        return {k: encoded(v) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return [encoded(v) for v in state]
    return int(state) if isinstance(state, np.integer) else state


def decoded(state: Any) -> Any:
    """Returns what `encoded` was given."""
    if isinstance(state, dict):
        if _INTEGERS in state:
            return np.frombuffer(zlib.decompress(base64.b64decode(state[_INTEGERS])), "<i8").astype(np.int64)
        return {k: decoded(v) for k, v in state.items()}
    return [decoded(v) for v in state] if isinstance(state, list) else state
