"""Compares a program that is new with those of the other tasks, before any of them runs it.

All tasks must run the same program: other ones wait for each other for ever, or add up what does not belong together.
A program is compared once, when it has been recorded, by a digest; what differs is looked for when something does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._runtime.runtime import Runtime
from lockstep._step.tracing import is_traced

# So much of a record is looked at for the first difference.
_MOST_LINES, _LONGEST = 4000, 160
_ADDRESS = re.compile(" at 0x[0-9a-f]+|0x[0-9a-f]{6,}")
_ADVICE = (
    "Make the program independent of the task; what differs between replicas are their shares of the data, and "
    "get_replica_context().replica_id_in_sync_group."
)


def demand_same(runtime: Runtime, name: str, records: Sequence[Any], told: Callable[[], dict[str, Any]]) -> None:
    """Compares a program; all tasks call it for the same one.

    Args:
        runtime: Who takes part.
        name: What messages call it.
        records: Its closed jaxprs.
        told: Returns what explains a difference, such as the arguments: JSON.

    Raises:
        MismatchError: On every task, if they have different programs.
    """
    if runtime.is_alone:
        return
    texts, constants = [text_of(r) for r in records], [digest_of(c) for r in records for c in getattr(r, "consts", ())]
    mine = hashlib.sha256(repr((texts, constants)).encode()).hexdigest()
    if len(set(runtime.agree(f"a new program, {name}", mine))) == 1:
        return
    lines = [line[:_LONGEST] for text in texts for line in text.splitlines()][:_MOST_LINES]
    # In this order a difference is looked for: by their names.
    facts = {**told(), "constant": constants, "what is computed, line ": dict(enumerate(lines)), "whole": mine}
    runtime.demand_same(f"program, {name}", facts, _ADVICE)


def text_of(record: Any) -> str:
    """Returns a record as text, without the addresses of what a process has made."""
    return _ADDRESS.sub("", str(record))


def digest_of(constant: Any) -> str:
    """Returns a short text that tells a constant of a record from others."""
    dtype = getattr(constant, "dtype", None)
    if is_traced(constant) or not isinstance(dtype, np.dtype):
        return "unknown"  # Of what an outer function is given, or what is no plain array, such as a key.
    value = constant.addressable_data(0) if isinstance(constant, jax.Array) else constant
    array = np.ascontiguousarray(value)
    return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def described(leaf: Any) -> str:
    """Returns what a leaf of arguments is: shape and type of an array, else its text."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return f"{leaf.dtype}{list(leaf.shape)}"
    name = getattr(leaf, "__qualname__", None)
    return name if name is not None else _ADDRESS.sub("", repr(leaf))[:_LONGEST]
