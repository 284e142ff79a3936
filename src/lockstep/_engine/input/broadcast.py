"""JSON and arrays from the chief to all workers, as one array of bytes.

What is restored may be long (a shuffle's buffer, the weights that a callback keeps): too long for a control message.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.protocol import Program
from lockstep._types import JSON

_END = b"\n"

Arrays = dict[str, np.ndarray[Any, Any]]


def to_bytes(extra: JSON, arrays: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Returns JSON and arrays as uint8 (n,)."""
    flat = {key: np.asarray(a) for key, a in arrays.items()}
    # numpy's text for bfloat16 and its kind is that of raw bytes; their names are unique.
    dtypes = [a.dtype.name if a.dtype.kind == "V" else a.dtype.str for a in flat.values()]
    layouts = [[key, dtype, list(a.shape)] for (key, a), dtype in zip(flat.items(), dtypes, strict=True)]
    head = json.dumps([extra, layouts]).encode() + _END
    return np.frombuffer(head + b"".join(np.ascontiguousarray(a).tobytes() for a in flat.values()), np.uint8)


def from_bytes(data: np.ndarray[Any, Any]) -> tuple[Any, Arrays]:
    """Returns the JSON and the arrays of `to_bytes`."""
    content = data.tobytes()
    start = content.index(_END) + len(_END)
    extra, layouts = json.loads(content[:start])
    arrays: Arrays = {}
    for key, dtype, shape in layouts:
        arrays[key] = np.frombuffer(content, np.dtype(dtype), math.prod(shape), start).reshape(shape)
        start += arrays[key].nbytes
    return extra, arrays


def from_chief(program: Program, is_chief: bool, mine: np.ndarray[Any, Any] | None, size: int) -> tuple[Any, Arrays]:
    """Broadcasts the bytes of `to_bytes`, and returns their JSON and arrays; a collective call.

    Args:
        program: A step program of all workers.
        is_chief: Whether this worker is the chief.
        mine: The chief's bytes.
        size: Their number.
    """
    sent = mine if is_chief and mine is not None else np.zeros(size, np.uint8)
    placed = program.agree_on_state([program.place_state(jnp.asarray(sent))])
    return from_bytes(np.asarray(program.local(placed[0])))
