"""Derivatives that a function takes in its midst, of what it has computed so far, as a gradient tape does.

JAX takes derivatives of functions. While one is traced, `begin` and `watched` leave marks in its record, and
`derivatives` leaves a place for results that are not known yet. `filled` makes of the finished record one in which they
are: it cuts out what leads from the sources to the target, evaluates this as a function of the sources, and the rest
around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from lockstep._engine.step import jaxprs
from lockstep._engine.step.jaxprs import bind
from lockstep.errors import UnsupportedError

_begin = jex.Primitive("lockstep_tape_begin")
_watch = jex.Primitive("lockstep_tape_watch")
_gradient = jex.Primitive("lockstep_tape_gradient")
_gradient.multiple_results = True
_MARKS = (_begin, _watch, _gradient)
_begin.def_abstract_eval(lambda **_: ShapedArray((), np.dtype(np.int32)))
_watch.def_abstract_eval(lambda value: value)
_gradient.def_abstract_eval(lambda _, __, *sources, **___: list(sources))


def begin() -> Any:
    """Returns the mark of this place in the record: what is computed after it counts."""
    return _begin.bind()


def watched(value: Any) -> Any:
    """Returns the same value, of which derivatives can be taken that do not concern what was computed of it before."""
    return _watch.bind(value)


def derivatives(start: Any, target: Any, sources: Sequence[Any], key: str) -> list[Any]:
    """Returns the derivatives of a number by sources, as far as it was computed of them after `start`.

    Args:
        start: What `begin` has returned.
        target: A float without dimensions.
        sources: Arrays of floats that this trace knows.
        key: Under which `filled` says which of them the target depends on.
    """
    return _gradient.bind(start, target, *sources, key=key)


def filled(closed: Any, axis_env: Sequence[tuple[str, int]], connected: dict[str, list[bool]]) -> Any:
    """Returns a record with the derivatives that it has places for; one that has none as it is.

    Args:
        closed: The closed jaxpr.
        axis_env: Of its trace.
        connected: Gets for each key of `derivatives` which sources the target depends on, in this record or one before.

    Raises:
        UnsupportedError: If derivatives are asked for inside of a loop, a condition, or the like.
    """
    jaxpr = jaxprs.opened(closed)
    marks = sum(eqn.primitive in _MARKS for eqn in jaxprs.equations(jaxpr))
    if not marks:
        return closed
    if sum(eqn.primitive in _MARKS for eqn in jaxpr.eqns) < marks:
        raise UnsupportedError(
            "Derivatives are taken where a replica's function itself runs. Received: a tape inside "
            "of a loop, a condition or a function that JAX compiles. Write the loop in Python, or use jax.grad there."
        )
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals]
    evaluated = partial(_evaluated, jaxpr, getattr(closed, "consts", ()), connected)
    return jax.make_jaxpr(evaluated, axis_env=list(axis_env))(*shapes)


def _evaluated(jaxpr: Any, constants: Sequence[Any], connected: dict[str, list[bool]], *inputs: Any) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))
    record = _Record(jaxpr)
    for i, path in record.paths.items():
        key = jaxpr.eqns[i].params["key"]
        before = connected.get(key, [False] * len(path.connected))
        connected[key] = [a or b for a, b in zip(before, path.connected, strict=True)]
    record.evaluate(values)
    return [_read(values, atom) for atom in jaxpr.outvars]


@dataclass(frozen=True)
class _Path:
    """What leads from sources to a target.

    Attributes:
        steps: The numbers of the equations, in their order.
        needs: What these take of others, and the sources.
        connected: Of each source: whether the target depends on it.
    """

    steps: Sequence[int]
    needs: Sequence[Any]
    connected: list[bool]


class _Record:
    """A jaxpr with places for derivatives."""

    def __init__(self, jaxpr: Any) -> None:
        self._eqns = jaxpr.eqns
        self._outputs = jaxpr.outvars
        self._maker = {var: i for i, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
        self._needs: list[Sequence[Any]] = []
        self.paths: dict[int, _Path] = {}
        for i, eqn in enumerate(jaxpr.eqns):
            if eqn.primitive is _gradient:
                self.paths[i] = self._path(i)
                self._needs.append(self.paths[i].needs)
            else:
                self._needs.append(_variables(eqn.invars))

    def _path(self, number: int) -> _Path:
        start, target, *sources = self._eqns[number].invars
        first = self._maker[start]
        reached = set(_variables(sources))
        passed = [i for i in range(first, number) if self._reaches(i, reached)]
        wanted, steps = set(_variables([target])), list[int]()
        for i in reversed(passed):
            if not wanted.isdisjoint(self._eqns[i].outvars):
                steps.insert(0, i)
                wanted.update(self._needs[i])
        made = {var for i in steps for var in self._eqns[i].outvars}
        needs = [v for i in steps for v in self._needs[i] if v not in made] + _variables([*sources, target])
        return _Path(steps, [v for v in dict.fromkeys(needs) if v not in made], [s in wanted for s in sources])

    def _reaches(self, number: int, reached: set[Any]) -> bool:
        """Whether an equation takes of what is reached; then what it makes is reached, too."""
        if reached.isdisjoint(self._needs[number]):
            return False
        reached.update(self._eqns[number].outvars)
        return True

    def evaluate(self, values: dict[Any, Any]) -> None:
        """Evaluates everything that the outputs are made of, and what has effects."""
        inside = {i for path in self.paths.values() for i in path.steps}
        for number, path in self.paths.items():
            if number not in inside:  # Others are evaluated with what they are inside of.
                self._demand(path.needs, values)
                self._apply(number, values)
        with_effects = [i for i, eqn in enumerate(self._eqns) if eqn.effects and not _is_there(eqn, values)]
        self._demand(_variables(self._outputs), values, with_effects)

    def _demand(self, variables: Iterable[Any], values: dict[Any, Any], also: Iterable[int] = ()) -> None:
        """Evaluates what these variables are made of, as far as it is not there yet."""
        wanted: set[int] = set()
        open_ = [self._maker[v] for v in variables if v not in values] + list(also)
        while open_:
            number = open_.pop()
            if number not in wanted:
                wanted.add(number)
                open_ += [self._maker[v] for v in self._needs[number] if v not in values]
        for number in sorted(wanted):
            self._apply(number, values)

    def _apply(self, number: int, values: dict[Any, Any]) -> None:
        eqn = self._eqns[number]
        if eqn.primitive is _gradient:
            return self._differentiate(number, values)
        given = [_read(values, atom) for atom in eqn.invars]
        with eqn.ctx.manager:
            found = _without_marks(eqn, given)
        values.update(zip(eqn.outvars, found, strict=True))

    def _differentiate(self, number: int, values: dict[Any, Any]) -> None:
        """Computes derivatives, and with them what is on the path to the target."""
        eqn, path = self._eqns[number], self.paths[number]
        _, target, *sources = eqn.invars
        made = dict.fromkeys(var for i in path.steps for var in self._eqns[i].outvars)
        values.update({o: _zeros(s) for o, s in zip(eqn.outvars, sources, strict=True)})
        by = list(dict.fromkeys(s for s, is_on in zip(sources, path.connected, strict=True) if is_on))

        def compute(given: Sequence[Any]) -> tuple[Any, list[Any]]:
            local = {**values, **{s: g for s, g in zip(by, given, strict=True) if s not in made}}
            inner = {s: g for s, g in zip(by, given, strict=True) if s in made}
            for i in path.steps:
                self._apply(i, local)
                local.update({v: local[v] + inner[v] for v in self._eqns[i].outvars if v in inner})
            return _read(local, target), [local[v] for v in made]

        if not by:
            return
        # Of a source on the path to the target, which others lead to, the derivative is that by something added to it.
        start = [_zeros(s) if s in made else values[s] for s in by]
        _, pull_back, found = jax.vjp(compute, start, has_aux=True)
        (of_sources,) = pull_back(jnp.ones(target.aval.shape, target.aval.dtype))
        values.update(zip(made, found, strict=True))
        known = dict(zip(by, of_sources, strict=True))
        values.update({o: known[s] for o, s in zip(eqn.outvars, sources, strict=True) if s in known})


def _without_marks(eqn: Any, given: Sequence[Any]) -> list[Any]:
    if eqn.primitive is _begin:
        return [np.int32(0)]
    return list(given) if eqn.primitive is _watch else bind(eqn.primitive, given, eqn.params)


def _is_there(eqn: Any, values: Mapping[Any, Any]) -> bool:
    return bool(eqn.outvars) and all(var in values for var in eqn.outvars)


def _zeros(atom: Any) -> Any:
    return jnp.zeros(atom.aval.shape, atom.aval.dtype)


def _read(values: Mapping[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, jex.Literal) else values[atom]


def _variables(atoms: Iterable[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, jex.Literal)]
