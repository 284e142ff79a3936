"""Cursor states as JSON values, encoded fast: a checkpoint is taken between two steps."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep._types import PyTree

_INTEGERS = "integers, base64"
# As earlier versions wrote them.
_PACKED = "int64, zlib, base64"


def encode(state: PyTree) -> Any:
    """Returns a state with integer arrays as text."""
    if isinstance(state, np.ndarray):
        # A number of its own for each integer would make the JSON of a large shuffle buffer slower than the step it is
        # saved beside.
        narrow = np.ascontiguousarray(state, _narrowest(state))
        # dtype.str names the byte order, so a checkpoint moves between machines.
        return {_INTEGERS: [narrow.dtype.str, base64.b64encode(narrow.tobytes()).decode("ascii")]}
    if isinstance(state, dict):
        return {k: encode(v) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return [encode(v) for v in state]
    return int(state) if isinstance(state, np.integer) else state


def decode(state: PyTree) -> Any:
    """Returns the state that `encode` received."""
    if isinstance(state, dict):
        if _INTEGERS in state:
            dtype, text = state[_INTEGERS]
            # int64 again, because ordinals are subtracted: unsigned ones would wrap.
            return np.frombuffer(base64.b64decode(text), dtype).astype(np.int64)
        if _PACKED in state:
            return np.frombuffer(zlib.decompress(base64.b64decode(state[_PACKED])), "<i8").astype(np.int64)
        return {k: decode(v) for k, v in state.items()}
    return [decode(v) for v in state] if isinstance(state, list) else state


def _narrowest(integers: NDArray[Any]) -> np.dtype[Any]:
    """Returns the smallest dtype that holds them all; most are positions of elements, and small."""
    lowest, highest = (int(integers.min()), int(integers.max())) if integers.size else (0, 0)
    for dtype in map(np.dtype, ("<u1", "<u2", "<u4")):
        if lowest >= 0 and highest <= np.iinfo(dtype).max:
            return dtype
    return np.dtype("<i8")
