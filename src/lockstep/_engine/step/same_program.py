"""Compares a program that is new with those of the other tasks, before any of them runs it.

All tasks must run the same program: other ones wait for each other for ever, or add up what does not belong together.
A program is compared once, when it has been recorded, by a digest; what differs is looked for when something does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.jaxpr_lines import Line, digest_of, lines_of

# So much of an argument or an equation is shown.
_LONGEST = 160
_LONGEST_EQUATION = 110
# The first equation that differs is looked for in so many parts of the program, then in so many parts of that part.
_PARTS = 256
_ADDRESS = re.compile(" at 0x[0-9a-f]+|0x[0-9a-f]{6,}")
ADVICE = (
    "Make the program independent of the task; what differs between replicas are their shares of the data, and "
    "get_replica_context().replica_id_in_sync_group."
)


def _arguments(avals: Sequence[Any]) -> dict[str, Any]:
    return {"argument": [described(aval) for aval in avals]}


@dataclass(frozen=True)
class Subject:
    """How messages speak of a step.

    Attributes:
        name: What they call it.
        explain: Returns what explains a difference, as JSON, of the types of the arguments.
        advice: What to do about a difference.
    """

    name: str = "the step"
    explain: Callable[[Sequence[Any]], dict[str, Any]] = _arguments
    advice: str = ADVICE


A_STEP = Subject()


def demand_same(
    runtime: Runtime, name: str, records: Sequence[Any], told: Callable[[], dict[str, Any]], advice: str = ADVICE
) -> str:
    """Compares a program; all tasks call it for the same one.

    Args:
        runtime: Who takes part.
        name: What messages call it.
        records: Its closed jaxprs.
        told: Returns what explains a difference, such as the arguments: JSON.
        advice: What to do about a difference.

    Returns:
        The digest of the program; empty in a process alone.

    Raises:
        MismatchError: On every task, if they have different programs.
    """
    if runtime.is_alone:
        return ""
    lines, constants = lines_of(records), [digest_of(c) for r in records for c in getattr(r, "consts", ())]
    mine = _digest([*constants, *(line.text for line in lines)])
    if len(set(runtime.all_gather_object(f"a new program, {name}", mine))) == 1:
        return mine
    topic = f"program, {name}"
    # In this order a difference is looked for: by the names of what the program is given, then in what it computes.
    runtime.check_same(topic, {**told(), "constant": constants}, advice)
    number = _first_different(runtime, topic, lines)
    runtime.check_same(topic, {f"equation {number}": _shown(lines, number)}, advice)
    runtime.check_same(topic, {"digest": mine}, advice)
    return mine


def _first_different(runtime: Runtime, topic: str, lines: Sequence[Line]) -> int:
    """Returns the number of the first line that is not the same on all tasks; all tasks call it together."""
    first, size = 0, max(runtime.all_gather_object(topic, len(lines)))
    while size > 1:
        part = -(-size // _PARTS)
        mine = [_digest([x.text for x in lines[i : i + part]])[:12] for i in range(first, first + size, part)]
        differs = [len(set(found)) > 1 for found in zip(*runtime.all_gather_object(topic, mine), strict=True)]
        first, size = first + part * differs.index(True), part
    return first


def _shown(lines: Sequence[Line], number: int) -> str:
    if number >= len(lines):
        return "none: the program ends before it"
    text, place = lines[number].text, lines[number].place
    short = text if len(text) <= _LONGEST_EQUATION else text[:_LONGEST_EQUATION] + "..."
    return f"{short} [{place}]" if place else short


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def described(leaf: Any) -> str:
    """Returns what a leaf of arguments is: shape and type of an array, else its text."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return f"{leaf.dtype}{list(leaf.shape)}"
    name = getattr(leaf, "__qualname__", None)
    return name if name is not None else _ADDRESS.sub("", repr(leaf))[:_LONGEST]
