"""JSON and arrays from the chief to all tasks, as one array of bytes.

What is restored may be long (a shuffle's buffer, the weights that a callback keeps): too long for an agreement.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.protocol import Program

_END = b"\n"

Arrays = dict[str, np.ndarray[Any, Any]]


def to_bytes(extra: Any, arrays: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Returns JSON and arrays as uint8 (n,)."""
    flat = {key: np.asarray(a) for key, a in arrays.items()}
    layouts = [[key, _text_of(a.dtype), list(a.shape)] for key, a in flat.items()]
    head = json.dumps([extra, layouts]).encode() + _END
    return np.frombuffer(head + b"".join(np.ascontiguousarray(a).tobytes() for a in flat.values()), np.uint8)


def from_bytes(data: np.ndarray[Any, Any]) -> tuple[Any, Arrays]:
    """Returns the JSON and the arrays of `to_bytes`."""
    content = data.tobytes()
    start = content.index(_END) + len(_END)
    extra, layouts = json.loads(content[:start])
    arrays: Arrays = {}
    for key, text, shape in layouts:
        arrays[key] = np.frombuffer(content, np.dtype(text), math.prod(shape), start).reshape(shape)
        start += arrays[key].nbytes
    return extra, arrays


def from_chief(program: Program, is_chief: bool, mine: np.ndarray[Any, Any] | None, size: int) -> tuple[Any, Arrays]:
    """Sends what `to_bytes` returned on the chief to all; all tasks call it.

    Args:
        program: A step program of all tasks.
        is_chief: Whether this task is the chief.
        mine: The chief's bytes.
        size: How many they are.

    Returns:
        The JSON and the arrays.
    """
    sent = mine if is_chief and mine is not None else np.zeros(size, np.uint8)
    placed = program.agree_on_state([program.place_state(jnp.asarray(sent))])
    return from_bytes(np.asarray(program.local(placed[0])))


def _text_of(dtype: np.dtype[Any]) -> str:
    """bfloat16 and its kind are known by their names."""
    return dtype.name if dtype.kind == "V" else dtype.str
