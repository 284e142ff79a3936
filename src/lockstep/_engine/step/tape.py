"""Gradient tapes: derivatives that a function takes in its midst, of what it has computed so far.

JAX takes derivatives of functions. While one is traced, `begin` and `watch` leave marks in its jaxpr, and `derivatives`
leaves a placeholder for results that are not known yet. `fill_derivatives` makes of the finished jaxpr one in which
they are: it cuts out what leads from the sources to the target, evaluates this as a function of the sources, and the
rest around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from lockstep._engine.step.jaxprs import (
    Atom,
    Equation,
    constants_of,
    equations,
    evaluate_equation,
    open_jaxpr,
    read,
    variables,
)
from lockstep._types import Array, Jaxpr
from lockstep.errors import UnsupportedError

# Primitives of lockstep's own, which only this file binds and evaluates: none is left in a jaxpr that is compiled.
_begin = jex.Primitive("lockstep_tape_begin")
_watch = jex.Primitive("lockstep_tape_watch")
_gradient = jex.Primitive("lockstep_tape_gradient")
_gradient.multiple_results = True
_MARKS = (_begin, _watch, _gradient)
_begin.def_abstract_eval(lambda **_: ShapedArray((), np.dtype(np.int32)))
_watch.def_abstract_eval(lambda value: value)
_gradient.def_abstract_eval(lambda _, __, *sources, **___: list(sources))


def begin() -> Array:
    """Returns the mark of this place in the jaxpr: what is computed after it counts."""
    return _begin.bind()


def watch(value: Array) -> Array:
    """Returns the same value, of which derivatives can be taken that do not concern what was computed of it before."""
    return _watch.bind(value)


def derivatives(start: Array, target: Array, sources: Sequence[Array], key: str) -> list[Array]:
    """Returns the derivatives of a number by sources, as far as it was computed of them after `start`.

    Args:
        start: The mark that `begin` has returned.
        target: A float without dimensions.
        sources: Arrays of floats that this trace knows.
        key: Under which `fill_derivatives` says which of them the target depends on.
    """
    return _gradient.bind(start, target, *sources, key=key)


def fill_derivatives(closed: Jaxpr, axis_env: Sequence[tuple[str, int]], connected: dict[str, list[bool]]) -> Jaxpr:
    """Returns a jaxpr with the derivatives that it has placeholders for; one that has none as it is.

    Args:
        closed: The closed jaxpr.
        axis_env: Of its trace.
        connected: Gets for each key of `derivatives` which sources the target depends on, in this jaxpr or one before.

    Raises:
        UnsupportedError: If derivatives are asked for inside of a loop, a condition, or the like.
    """
    body = open_jaxpr(closed)
    marks = sum(eqn.primitive in _MARKS for eqn in equations(body))
    if not marks:
        return closed
    if sum(eqn.primitive in _MARKS for eqn in body.eqns) < marks:
        raise UnsupportedError(
            "Derivatives are taken where a replica's function itself runs. Received: a tape inside "
            "of a loop, a condition or a function that JAX compiles. Write the loop in Python, or use jax.grad there."
        )
    flow = _DataFlow(body)
    for i, path in flow.paths.items():
        key = body.eqns[i].params["key"]
        before = connected.get(key, [False] * len(path.connected))
        connected[key] = [a or b for a, b in zip(before, path.connected, strict=True)]

    def evaluate(*inputs: Array) -> list[Array]:
        values: dict[Any, Any] = dict(zip(body.constvars, constants_of(closed), strict=True))
        values.update(zip(body.invars, inputs, strict=True))
        flow.evaluate(values)
        return [read(values, atom) for atom in body.outvars]

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals]
    return jax.make_jaxpr(evaluate, axis_env=list(axis_env))(*shapes)


@dataclass(frozen=True)
class _Path:
    """The equations that lead from sources to a target.

    Attributes:
        steps: The numbers of the equations, in their order.
        needs: The sources, and what the equations take of others.
        connected: Of each source: whether the target depends on it.
    """

    steps: Sequence[int]
    needs: Sequence[Any]
    connected: list[bool]


class _DataFlow:
    """Data flow of a jaxpr with placeholders; evaluates equations in another order than they were traced.

    An equation inside of a path is evaluated under `jax.vjp`, with all others of that path; the rest comes as it is
    needed.
    """

    def __init__(self, jaxpr: Jaxpr) -> None:
        self._eqns = jaxpr.eqns
        self._outputs = jaxpr.outvars
        self._maker = {var: i for i, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
        self._needs: list[Sequence[Any]] = []
        self.paths: dict[int, _Path] = {}
        for i, eqn in enumerate(jaxpr.eqns):
            if eqn.primitive is _gradient:
                self.paths[i] = self._find_path(i)
                self._needs.append(self.paths[i].needs)
            else:
                self._needs.append(list(variables(eqn.invars)))

    def _find_path(self, number: int) -> _Path:
        start, target, *sources = self._eqns[number].invars
        # Forward from the mark: what depends on the sources; then backward from the target: what of it leads there.
        reached = set(variables(sources))
        passed: list[int] = []
        for i in range(self._maker[start], number):
            if not reached.isdisjoint(self._needs[i]):
                reached.update(self._eqns[i].outvars)
                passed.append(i)
        wanted, steps = set(variables([target])), list[int]()
        for i in reversed(passed):
            if not wanted.isdisjoint(self._eqns[i].outvars):
                steps.insert(0, i)
                wanted.update(self._needs[i])
        made = {var for i in steps for var in self._eqns[i].outvars}
        needs = [*(v for i in steps for v in self._needs[i]), *variables([*sources, target])]
        return _Path(steps, [v for v in dict.fromkeys(needs) if v not in made], [s in wanted for s in sources])

    def evaluate(self, values: dict[Any, Any]) -> None:
        """Evaluates everything that the outputs are made of, and what has effects."""
        inside = {i for path in self.paths.values() for i in path.steps}
        for number, path in self.paths.items():
            if number not in inside:  # Others are evaluated with what they are inside of.
                self._evaluate_needed(path.needs, values)
                self._apply(number, values)
        # An equation without outputs, such as a print, is needed by nothing.
        with_effects = [
            i
            for i, eqn in enumerate(self._eqns)
            if eqn.effects and not (eqn.outvars and all(var in values for var in eqn.outvars))
        ]
        self._evaluate_needed(variables(self._outputs), values, with_effects)

    def _evaluate_needed(self, wanted: Iterable[Any], values: dict[Any, Any], also: Iterable[int] = ()) -> None:
        """Evaluates what variables are made of, as far as it is not there yet."""
        needed: set[int] = set()
        pending = [self._maker[v] for v in wanted if v not in values] + list(also)
        while pending:
            number = pending.pop()
            if number not in needed:
                needed.add(number)
                pending += [self._maker[v] for v in self._needs[number] if v not in values]
        # In the order of the trace, in which every input is made before its users.
        for number in sorted(needed):
            self._apply(number, values)

    def _apply(self, number: int, values: dict[Any, Any]) -> None:
        eqn = self._eqns[number]
        if eqn.primitive is _gradient:
            self._differentiate(eqn, self.paths[number], values)
        elif eqn.primitive is _begin:
            values[eqn.outvars[0]] = np.int32(0)
        elif eqn.primitive is _watch:
            values[eqn.outvars[0]] = read(values, eqn.invars[0])
        else:
            results = evaluate_equation(eqn, [read(values, atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))

    def _differentiate(self, eqn: Equation, path: _Path, values: dict[Any, Any]) -> None:
        """Computes derivatives, and with them what is on the path to the target."""
        _, target, *sources = eqn.invars
        made = dict.fromkeys(var for i in path.steps for var in self._eqns[i].outvars)
        # Of sources that the target does not depend on they stay zeros; whoever asked knows by `connected`, and returns
        # what tf.GradientTape does: `None`, or zeros with unconnected_gradients.
        values.update({o: _zeros(s) for o, s in zip(eqn.outvars, sources, strict=True)})
        by = list(dict.fromkeys(s for s, is_on in zip(sources, path.connected, strict=True) if is_on))
        if not by:
            return

        def compute(given: Sequence[Array]) -> tuple[Array, list[Array]]:
            local = {**values, **{s: g for s, g in zip(by, given, strict=True) if s not in made}}
            inner = {s: g for s, g in zip(by, given, strict=True) if s in made}
            for i in path.steps:
                self._apply(i, local)
                local.update({v: local[v] + inner[v] for v in self._eqns[i].outvars if v in inner})
            return read(local, target), [local[v] for v in made]

        # Of a source on the path to the target, which others lead to, the derivative is that by something added to it.
        start = [_zeros(s) if s in made else values[s] for s in by]
        _, pull_back, computed = jax.vjp(compute, start, has_aux=True)
        (of_sources,) = pull_back(jnp.ones(target.aval.shape, target.aval.dtype))
        # What was computed on the way is kept: nothing of the forward pass is computed twice.
        values.update(zip(made, computed, strict=True))
        known = dict(zip(by, of_sources, strict=True))
        values.update({o: known[s] for o, s in zip(eqn.outvars, sources, strict=True) if s in known})


def _zeros(atom: Atom) -> Array:
    return jnp.zeros(atom.aval.shape, atom.aval.dtype)
