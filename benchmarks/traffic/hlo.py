"""Reads from a compiled program what travels between its replicas."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

_WIDTH = {"f32": 4, "f64": 8, "u16": 2, "bf16": 2, "f16": 2, "u32": 4, "s32": 4, "u8": 1, "pred": 1}
_COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_BEGINS = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_CALLS = re.compile(r"(?:to_apply|calls|body|condition)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"(?:branch_computations=\{([^}]*)\}|true_computation=([^,]*), false_computation=([^,\s]*))")


def collectives(text: str) -> Iterator[tuple[str, int]]:
    """Yields the kind of each collective, and the bytes of its result."""
    for line in text.splitlines():
        yield from _collective(line)


def _collective(line: str) -> Iterator[tuple[str, int]]:
    found = _COLLECTIVE.search(line)
    if found is not None:
        shapes = _SHAPE.findall(found[1])
        yield found[2], sum(_WIDTH[t] * math.prod(int(n) for n in dims.split(",") if n) for t, dims in shapes)


def counted(text: str) -> Counter[str]:
    """Returns how many collectives of each kind there are."""
    return Counter(kind for kind, _ in collectives(text))


def traffic(text: str, replicas: int, chosen: Callable[[Iterable[float]], float] = min) -> float:
    """Returns the bytes that each replica sends, if the collectives are as good as can be.

    Args:
        text: The program, as XLA prints it.
        replicas: How many take part.
        chosen: Which branch of a condition counts: `min` for the one that sends least, `max` for the other.
    """
    computations, entry = _computations(text)

    def of(name: str) -> float:
        return sum(_line(line) for line in computations.get(name.strip("% "), []))

    def _line(line: str) -> float:
        sent = sum(_sent(kind, size, replicas) for kind, size in _collective(line))
        for found in _BRANCHES.findall(line):
            sent += chosen(of(name) for group in found if group for name in group.split(","))
        return sent + sum(of(name) for name in _CALLS.findall(line))

    return of(entry)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation by its name, and the name of the one that is run."""
    found: dict[str, list[str]] = {}
    name = entry = ""
    for line in text.splitlines():
        begins = _BEGINS.match(line)
        if begins:
            name = begins[2]
            entry = name if begins[1] else entry
        found.setdefault(name, []).append(line)
    return found, entry


def _sent(kind: str, size: int, replicas: int) -> float:
    # The result of all-to-all is a tuple of what each has sent; that of all-gather is all of it; that of reduce-scatter
    # is a part.
    part = {"collective-permute": 1.0, "reduce-scatter": replicas - 1.0}.get(kind, (replicas - 1) / replicas)
    return size * part * (2 if kind == "all-reduce" else 1)
