"""Digests of programs: compares a program that is new with those of the other tasks, before any of them runs it.

All tasks must run the same program: other ones wait for each other for ever, or all-reduce what does not belong
together. A program is compared once, when it has been traced, by a digest of its jaxpr as text; the first difference is
looked for only if there is one.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.sharding import NamedSharding, Sharding

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.jaxprs import Atom, Equation, constants_of, is_jaxpr, is_traced, name_of, open_jaxpr
from lockstep._types import Jaxpr

# An argument and an equation are shown with so many characters at most.
_MOST_SHOWN = 160
_MOST_SHOWN_EQUATION = 110
# The first equation that differs is looked for in so many parts of the program, then in so many parts of that part: a
# program of 65,000 equations takes two exchanges of 256 digests.
_PARTS = 256
_ADDRESS = re.compile(" at 0x[0-9a-f]+|0x[0-9a-f]{6,}")
# "/opt/python/site-packages/keras/src/losses.py:12" in the text of what jax has made of a function.
_PATH = re.compile(r"(?:[A-Za-z]:)?[/\\][^\s'\"<>,()]*\.py\b(?::\d+)?")
# "jvp(model)/layer": what jax does to a part of a model is no part of its name.
_TRANSFORMED = re.compile(r"\b(?:jvp|transpose|vmap|rematted_computation|checkpoint)\(([^()]*)\)")
_PLAIN = (str, bytes, bool, int, float, complex, type(None), np.dtype, enum.Enum)
_SITE_PACKAGES = f"{os.sep}site-packages{os.sep}"
_PYTHON = os.path.dirname(os.__file__)
ADVICE = (
    "Make the program independent of the task; what differs between replicas are their shares of the data, and "
    "get_replica_context().replica_id_in_sync_group."
)


@dataclass(frozen=True)
class Subject:
    """Words for a step in messages.

    Attributes:
        name: The name in messages.
        explain: Returns what explains a difference, as JSON, of the types of the arguments.
        advice: What to do about a difference.
    """

    name: str = "the step"
    explain: Callable[[Sequence[Any]], dict[str, Any]] = lambda avals: {"argument": [describe(a) for a in avals]}
    advice: str = ADVICE


A_STEP = Subject()


def check_same_program(
    runtime: Runtime, name: str, jaxprs: Sequence[Jaxpr], explain: Callable[[], dict[str, Any]], advice: str = ADVICE
) -> str:
    """Compares a program; all tasks call it for the same one.

    Returns:
        The digest of the program; empty in a process alone.

    Raises:
        MismatchError: On every task, if they have different programs.
    """
    if runtime.is_alone:
        return ""
    lines, constants = jaxpr_lines(jaxprs), [constant_digest(c) for jaxpr in jaxprs for c in constants_of(jaxpr)]
    mine = _digest([*constants, *(line.text for line in lines)])
    if len(set(runtime.all_gather_object(f"a new program, {name}", mine))) == 1:
        return mine
    topic = f"program, {name}"
    # In this order a difference is looked for: by the names of what the program is given, then in what it computes.
    runtime.check_same(topic, {**explain(), "constant": constants}, advice)
    number = _first_different(runtime, topic, lines)
    shown = "none: the program ends before it"
    if number < len(lines):
        text, place = lines[number].text, lines[number].place
        shown = text if len(text) <= _MOST_SHOWN_EQUATION else text[:_MOST_SHOWN_EQUATION] + "..."
        shown = f"{shown} [{place}]" if place else shown
    runtime.check_same(topic, {f"equation {number}": shown}, advice)
    # Long equations are cut where they are shown: if the difference is beyond that, this still raises.
    runtime.check_same(topic, {"digest": mine}, advice)
    return mine


def _first_different(runtime: Runtime, topic: str, lines: Sequence[Line]) -> int:
    """Returns the number of the first line that is not the same on all tasks; all tasks call it together.

    It is the length of the longest program if no part of it differs by its digest.
    """
    longest = max(runtime.all_gather_object(topic, len(lines)))
    first, size = 0, longest
    while size > 1:
        part = -(-size // _PARTS)
        mine = [_digest([x.text for x in lines[i : i + part]])[:12] for i in range(first, first + size, part)]
        differs = [len(set(column)) > 1 for column in zip(*runtime.all_gather_object(topic, mine), strict=True)]
        if True not in differs:
            # Different parts with equal digests, of 48 bits: the caller then compares the digests of whole programs.
            return longest
        first, size = first + part * differs.index(True), part
    return first


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def describe(leaf: Any) -> str:
    """Returns shape and dtype of an array, the name of a function, else the text of a leaf of arguments."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return f"{leaf.dtype}{list(leaf.shape)}"
    name = getattr(leaf, "__qualname__", None)
    return name if name is not None else _ADDRESS.sub("", repr(leaf))[:_MOST_SHOWN]


@dataclass(frozen=True)
class Line:
    """An equation as text.

    Attributes:
        text: The operation, its operands by number, its parameters, the types of its results.
        sources: Where jax says that it comes from: the equation itself, and those around it.
    """

    text: str
    sources: tuple[Any, ...]

    @property
    def place(self) -> str:
        """The part of the model and the line of the program that it comes from, as far as jax knows; for people."""
        names = [_TRANSFORMED.sub(r"\1", str(s.name_stack)) for s in self.sources]
        name = "/".join(n for n in reversed(names) if n)
        line = next(filter(None, (_line_of_user(s.traceback) for s in self.sources)), "")
        return ", ".join(filter(None, (name, line)))


def jaxpr_lines(jaxprs: Sequence[Jaxpr]) -> list[Line]:
    """Returns the equations of closed jaxprs as text, equal on two tasks if and only if they compute the same.

    Those inside of others come after them, in the order in which they run.
    """
    # Not `str(jaxpr)`: it has addresses of what a process has made, the order of its sets, and the paths of its files.
    # It takes four times as long, too: 0.18 s for the training step of MobileNetV2, beside 0.04 s (2-core EPYC).
    writer = _Writer()
    return [line for jaxpr in jaxprs for line in writer.lines(jaxpr, ())]


def constant_digest(constant: Any) -> str:
    """Returns a short text that tells a constant of a jaxpr from others: its type, shape, and a digest of its bytes."""
    dtype = getattr(constant, "dtype", None)
    if is_traced(constant) or not isinstance(dtype, np.dtype):
        return "unknown"  # Of what an outer function is given, or what is no plain array, such as a key.
    if isinstance(constant, jax.Array):
        if not constant.is_fully_replicated:
            return f"{dtype}{list(constant.shape)} in parts"  # Of which each task has another one.
        constant = constant.addressable_data(0)
    array = np.ascontiguousarray(constant)
    return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


class _Writer:
    """Writes jaxprs; what is inside of several equations is written once."""

    def __init__(self) -> None:
        self._types: dict[Any, str] = {}
        # With the jaxpr itself: an identity is good only as long as its object lives.
        self._inner: dict[int, tuple[Any, list[Line]]] = {}

    def lines(self, jaxpr: Jaxpr, around: tuple[Any, ...]) -> list[Line]:
        """Returns the equations of a jaxpr, after its constants."""
        body, numbers = open_jaxpr(jaxpr), dict[Any, int]()
        for var in (*body.constvars, *body.invars):
            numbers[var] = len(numbers)
        given = " ".join(self._type(v.aval) for v in (*body.constvars, *body.invars))
        lines = [Line(f"given {given} {' '.join(map(constant_digest, constants_of(jaxpr)))}", around)]
        for eqn in body.eqns:
            lines += self._equation(eqn, numbers, around)
        lines.append(Line("return " + " ".join(_operand(a, numbers) for a in body.outvars), around))
        return lines

    def _equation(self, eqn: Equation, numbers: dict[Any, int], around: tuple[Any, ...]) -> Iterator[Line]:
        inside: list[Any] = []
        parameters = "".join(f" {k}={_parameter_text(v, inside)}" for k, v in sorted(eqn.params.items()))
        operands = " ".join([_operand(a, numbers) for a in eqn.invars])
        for var in eqn.outvars:
            numbers[var] = len(numbers)
        results = " ".join([self._type(v.aval) for v in eqn.outvars])
        sources = (eqn.source_info, *around)
        yield Line(f"{eqn.primitive.name} {operands} -> {results}{parameters}", sources)
        for jaxpr in inside:
            if id(jaxpr) not in self._inner:
                self._inner[id(jaxpr)] = jaxpr, self.lines(jaxpr, sources)
            yield from self._inner[id(jaxpr)][1]

    def _type(self, aval: Any) -> str:
        text = self._types.get(aval)
        if text is None:
            text = self._types[aval] = _ADDRESS.sub("", aval.str_short())
        return text


def _operand(atom: Atom, numbers: Mapping[Any, int]) -> str:
    return _literal(atom.val) if isinstance(atom, jex.Literal) else f"v{numbers[atom]}"


def _literal(value: Any) -> str:
    if np.ndim(value):
        return constant_digest(value)
    return repr(value.item() if hasattr(value, "item") else value)


def _parameter_text(value: Any, inside: list[Jaxpr]) -> str:
    """Returns a parameter as text; the jaxprs in it are put into `inside`."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if is_jaxpr(value):
        inside.append(value)
        return "{}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join([_parameter_text(v, inside) for v in value])})"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(_parameter_text(v, inside) for v in value))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{k!r}: {_parameter_text(v, inside)}' for k, v in value.items()))}}}"
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return _literal(value)
    if isinstance(value, Sharding):
        # Others name devices, and each task has its own.
        return f"{dict(value.mesh.shape)} {value.spec}" if isinstance(value, NamedSharding) else type(value).__name__
    if isinstance(value, jax.Device):
        # Not its number, which each process has another one of.
        return value.platform
    return name_of(value) if callable(value) else " ".join(_PATH.sub("", _ADDRESS.sub("", repr(value))).split())


def _line_of_user(traceback: Any) -> str:
    """Returns the innermost line that is neither of a library nor of Python's own."""
    modules = [sys.modules.get(name) for name in ("jax", "keras", "lockstep", "optax", "flax")]
    libraries = tuple(os.path.dirname(str(m.__file__)) + os.sep for m in modules if m is not None and m.__file__)
    for frame in getattr(traceback, "frames", ()):
        name = str(frame.file_name)
        if not name.startswith(libraries) and (_SITE_PACKAGES in name or not name.startswith(_PYTHON)):
            return f"{os.path.basename(name)}:{frame.line_num}"
    return ""
