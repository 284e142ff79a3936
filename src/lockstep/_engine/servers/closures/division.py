"""Divides a traced function into what a worker computes and what servers do to their variables.

A worker computes with values of some time ago. So an effect must not be a new value, which would undo what others have
done meanwhile: it is a function of the variable as the server has it, and of what the worker has computed. For a
variable that an optimizer updates, that is all from its gradient on, together with its slots. For `v.assign_add(x)` it
is the sum. Where the new value depends on the old one through more than a few elementwise operations, the difference is
added, and where it does not depend on it at all, it is set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.servers.closures.windows import Window, evaluate, find_window, leaves_rows, windowed
from lockstep._engine.step.jaxprs import (
    called_jaxpr,
    constants_of,
    evaluate_equation,
    evaluate_stepwise,
    open_jaxpr,
    read,
    variables,
)
from lockstep._types import Array, Jaxpr
from lockstep.errors import UnsupportedError

Way = Literal["value", "amount"]
# Of one element each, whatever the shape: a range of rows of the result needs that range of the operands.
_ELEMENTWISE = frozenset(
    "abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy copy_p cos cosh div "  # noqa: SIM905
    "eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul name ne "
    "neg nextafter not or pow rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan tanh xor "
    "broadcast_in_dim".split()
)
_CALLS = frozenset(("pjit", "jit", "closed_call", "core_call"))
# More than an average or a maximum takes; beyond it lies somebody's model.
_MOST_STEPS = 32


@dataclass(frozen=True)
class Effect:
    """Describes what a server does to variables that belong together.

    Attributes:
        variables: Their numbers among the variables of the function: what is read, and given a new value.
        payload: The numbers of what workers send.
        run: `(values, payload, rows) -> values`, which JAX traces; `rows` is the length of a range of rows, or `None`.
        is_by_rows: Whether each row of the values depends on that row of the values and of the payload alone.
    """

    variables: tuple[int, ...]
    payload: tuple[int, ...]
    run: Callable[[Sequence[Array], Sequence[Array], int | None], list[Array]]
    is_by_rows: bool


@dataclass(frozen=True)
class Division:
    """A function in two parts.

    Attributes:
        compute: `(*inputs) -> (*results, *payload)` of the worker, which JAX traces; of the inputs that are used.
        used: The numbers of these inputs, among all.
        results: How many of its outputs are results.
        payload: Shapes and dtypes of the others.
        effects: What servers do.
        windows: The tables of which a worker has rows alone: `compute` takes windows in place of them, and after all
            inputs, of each table for each of its lookups, int32 rows in the window.
        ids: `(*inputs) -> ids` of all lookups, which JAX traces; of the inputs `ids_used`.
        ids_used: The numbers of these inputs, among all.
        rows_of: By the number of what is a gradient of rows of a window in the payload: the number of the window.
    """

    compute: Callable[..., list[Array]]
    used: tuple[int, ...]
    results: int
    payload: tuple[jax.ShapeDtypeStruct, ...]
    effects: tuple[Effect, ...]
    windows: tuple[Window, ...] = ()
    ids: Callable[..., list[Array]] | None = None
    ids_used: tuple[int, ...] = ()
    rows_of: Mapping[int, int] = field(default_factory=dict[int, int])

    def window_of(self, effect: Effect) -> int | None:
        """Returns the number of the window whose gradients an effect takes."""
        return next((self.rows_of[n] for n in effect.payload if n in self.rows_of), None)


def divide(
    closed: Jaxpr, arguments: int, assigned: Sequence[tuple[int, Way]], is_cut: Callable[[Any], bool]
) -> Division:
    """Divides a traced function.

    Args:
        closed: `(*arguments, *variables) -> (*results, *assigned)`, a closed jaxpr.
        arguments: How many arguments there are.
        assigned: Of each of the last outputs: the number of its variable, and whether it is the new value or the amount
            that is added.
        is_cut: Returns whether an equation marks a gradient.
    """
    return _Divider(inlined(closed), arguments, assigned, is_cut).result()


def inlined(closed: Jaxpr) -> Jaxpr:
    """Returns a closed jaxpr in which functions that are no more than called are a part of it."""

    def evaluate(*inputs: Array) -> list[Array]:
        return _evaluate_inlined(closed, inputs)

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals]
    return jax.make_jaxpr(evaluate)(*shapes)


def _evaluate_inlined(closed: Jaxpr, inputs: Sequence[Array]) -> list[Array]:
    steps = evaluate_stepwise(closed, inputs)
    try:
        eqn, values = next(steps)
        while True:
            called = called_jaxpr(eqn) if eqn.primitive.name in _CALLS else None
            found = evaluate_equation(eqn, values) if called is None else _evaluate_inlined(called, values)
            eqn, values = steps.send(found)
    except StopIteration as end:
        return list(end.value)


class _Divider:
    """Divides one function; see `divide`."""

    def __init__(
        self, closed: Jaxpr, arguments: int, assigned: Sequence[tuple[int, Way]], is_cut: Callable[[Any], bool]
    ) -> None:
        self._closed = closed
        self._body = open_jaxpr(closed)
        self._eqns = self._body.eqns
        self._constants = dict(zip(self._body.constvars, constants_of(closed), strict=True))
        self._maker = {v: i for i, eqn in enumerate(self._eqns) for v in eqn.outvars}
        self._cuts = {v for eqn in self._eqns if is_cut(eqn) for v in eqn.outvars}
        self._arguments = arguments
        self._input_of = {n: v for n, v in enumerate(self._body.invars[arguments:])}
        self._results = len(self._body.outvars) - len(assigned)
        self._outputs = {number: self._body.outvars[self._results + i] for i, (number, _) in enumerate(assigned)}
        self._amounts = {number for number, way in assigned if way == "amount"}
        # Variables, literals, and differences `(new, old)`, which are no variables of the jaxpr.
        self._payload: dict[Any, int] = {}

    def result(self) -> Division:
        groups = self._groups()
        effects = tuple(self._effect_of_group(group) for group in groups)
        updated = {n for group in groups for n in group}
        # What keeps its value is no effect.
        changed = [n for n, atom in self._outputs.items() if n in self._amounts or atom is not self._input_of[n]]
        effects += tuple(self._effect_of(n) for n in changed if n not in updated)
        sent = list(self._payload)
        eqns = self._reached([*self._body.outvars[: self._results], *_atoms(sent)])
        shapes = tuple(jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype) for a in map(_first, sent))
        windows, rows_of = self._windows(eqns, sent, shapes, effects)
        sizes = {n: windows[w].size for n, w in rows_of.items()}
        shapes = tuple(windowed(s, sizes[n]) if n in sizes else s for n, s in enumerate(shapes))
        compute, used = self._worker(sent, eqns, windows)
        ids, ids_used = self._ids(windows)
        return Division(compute, used, self._results, shapes, effects, windows, ids, ids_used, rows_of)

    # What depends on what ---------------------------------------------------------------------------------------------

    def _region(self, atom: Any) -> tuple[set[int], set[Any]]:
        """Returns the equations that a value is computed by, from gradients and inputs on; and these."""
        steps, leaves, pending = set[int](), set[Any](), list(variables([atom]))
        while pending:
            var = pending.pop()
            if var in self._cuts or var not in self._maker:
                leaves.add(var)
            elif (number := self._maker[var]) not in steps:
                steps.add(number)
                pending += variables(self._eqns[number].invars)
        return steps, leaves

    def _dependent(self, steps: set[int], own: Iterable[Any]) -> list[int]:
        """Returns those of some equations that depend on variables, in their order."""
        reached = set(own)
        found: list[int] = []
        for number in sorted(steps):
            eqn = self._eqns[number]
            if any(v in reached and v not in self._cuts for v in variables(eqn.invars)):
                reached.update(eqn.outvars)
                found.append(number)
        return found

    def _groups(self) -> list[list[int]]:
        """Returns the variables that gradients update, each with those that its update reads and moves."""
        regions = {n: self._region(atom) for n, atom in self._outputs.items() if n not in self._amounts}
        updated = {n for n, (_, leaves) in regions.items() if leaves & self._cuts}
        group_of = {n: {n} for n in updated}
        number_of = {var: n for n, var in self._input_of.items()}
        for n in sorted(updated):
            for other in {number_of[v] for v in regions[n][1] if v in number_of} & updated:
                merged = group_of[n] | group_of[other]
                for member in merged:
                    group_of[member] = merged
        return [sorted(g) for g in {id(g): g for g in group_of.values()}.values()]

    # What servers do --------------------------------------------------------------------------------------------------

    def _effect_of_group(self, group: Sequence[int]) -> Effect:
        steps = set[int]().union(*(self._region(self._outputs[n])[0] for n in group))
        return self._effect(group, self._dependent(steps, (self._input_of[n] for n in group)), steps)

    def _effect_of(self, number: int) -> Effect:
        atom, own = self._outputs[number], self._input_of[number]
        if number in self._amounts:
            return self._addition(number, atom)
        steps, leaves = self._region(atom)
        if own not in leaves and atom is not own:
            return self._effect([number], [], steps)
        last = self._maker.get(atom) if atom is not own else None
        if last is not None and self._adds(self._eqns[last], own):
            return self._effect([number], [last], steps - {last})
        path = self._dependent(steps, [own])
        if len(path) <= _MOST_STEPS and all(self._eqns[n].primitive.name in _ELEMENTWISE for n in path):
            return self._effect([number], path, steps)
        if own.aval.dtype == bool:
            return self._effect([number], [], set())
        return self._addition(number, (atom, own))

    @staticmethod
    def _adds(eqn: Any, own: Any) -> bool:
        """Returns whether an equation adds something to a variable, or takes it off."""
        at = [i for i, v in enumerate(eqn.invars) if v is own]
        return (eqn.primitive.name == "add" and len(at) == 1) or (eqn.primitive.name == "sub" and at == [0])

    def _addition(self, number: int, what: Any) -> Effect:
        """Returns the effect that adds what a worker sends."""
        dtype = self._input_of[number].aval.dtype

        def run(values: Sequence[Array], payload: Sequence[Array], rows: int | None) -> list[Array]:
            del rows
            return [jnp.add(values[0], payload[0]).astype(dtype)]

        return Effect((number,), (self._send(what),), run, is_by_rows=True)

    def _send(self, what: Any) -> int:
        return self._payload.setdefault(what, len(self._payload))

    def _effect(self, group: Sequence[int], steps: Sequence[int], region: set[int]) -> Effect:
        """Returns the effect of equations on a group; of what they need besides, as little as possible is sent."""
        own = [self._input_of[n] for n in group]
        outputs = [self._outputs[n] for n in group]
        chosen = self._with_cheap(set(steps), region, own, outputs)
        needed = self._needed(chosen, own, outputs)
        constants = {v: self._constants[v] for v in needed if v in self._constants}
        sent = [v for v in needed if v not in constants]
        payload = tuple(self._send(v) for v in sent)
        ordered = [self._eqns[n] for n in sorted(chosen)]

        def run(values: Sequence[Array], given: Sequence[Array], rows: int | None) -> list[Array]:
            known = {**constants, **dict(zip(own, values, strict=True)), **dict(zip(sent, given, strict=True))}
            for eqn in ordered:
                known.update(zip(eqn.outvars, _evaluate(eqn, [read(known, v) for v in eqn.invars], rows), strict=True))
            return [
                jnp.broadcast_to(jnp.asarray(read(known, out), var.aval.dtype), np.shape(value))
                for out, var, value in zip(outputs, own, values, strict=True)
            ]

        return Effect(tuple(group), payload, run, self._is_by_rows(group, ordered, needed, outputs))

    def _needed(self, chosen: set[int], own: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """Returns what equations and outputs take that they do not make."""
        made = {v for n in chosen for v in self._eqns[n].outvars} | set(own)
        taken = [v for n in sorted(chosen) for v in variables(self._eqns[n].invars)] + list(variables(outputs))
        return [v for v in dict.fromkeys(taken) if v not in made]

    def _with_cheap(self, chosen: set[int], region: set[int], own: Sequence[Any], outputs: Sequence[Any]) -> set[int]:
        """Returns the equations with those that make an array of what servers are sent anyway, such as its square."""
        while True:
            needed = self._needed(chosen, own, outputs)
            there = set(needed) | set(own) | {v for n in chosen for v in self._eqns[n].outvars}
            for var in needed:
                number = self._maker.get(var)
                if number is None or number not in region or var in self._cuts or not var.aval.shape:
                    continue
                eqn = self._eqns[number]
                arrays = [v for v in variables(eqn.invars) if v.aval.shape]
                if eqn.primitive.name in _ELEMENTWISE and not eqn.effects and all(v in there - {var} for v in arrays):
                    chosen = chosen | {number}
                    break
            else:
                return chosen

    def _is_by_rows(
        self, group: Sequence[int], steps: Sequence[Any], needed: Sequence[Any], outputs: Sequence[Any]
    ) -> bool:
        shapes = {self._input_of[n].aval.shape for n in group}
        if len(shapes) != 1 or not (shape := shapes.pop()):
            return False
        # Constants are whole arrays of the program.
        if any(v in self._constants and v.aval.shape for v in needed):
            return False
        atoms = [*needed, *outputs, *(v for eqn in steps for v in (*eqn.invars, *eqn.outvars))]
        if any(a.aval.shape not in ((), shape) for a in atoms):
            return False
        return all(eqn.primitive.name in _ELEMENTWISE for eqn in steps)

    # What a worker computes -------------------------------------------------------------------------------------------

    def _reached(self, outputs: Iterable[Any], are_all: bool = True) -> dict[int, Any]:
        """Returns the equations that values are computed by; with `are_all` those that print, too."""
        reached = {n for n, eqn in enumerate(self._eqns) if eqn.effects} if are_all else set[int]()
        pending = list(variables([*outputs, *(v for n in reached for v in self._eqns[n].invars)]))
        while pending:
            if (number := self._maker.get(pending.pop())) is not None and number not in reached:
                reached.add(number)
                pending += variables(self._eqns[number].invars)
        return {n: self._eqns[n] for n in sorted(reached)}

    def _used(self, eqns: Mapping[int, Any], outputs: Iterable[Any]) -> tuple[int, ...]:
        """Returns the numbers of the inputs that equations and outputs take."""
        needed = {v for eqn in eqns.values() for v in variables(eqn.invars)} | set(variables(outputs))
        return tuple(n for n, v in enumerate(self._body.invars) if v in needed)

    def _windows(
        self, eqns: Mapping[int, Any], sent: Sequence[Any], shapes: Sequence[Any], effects: Sequence[Effect]
    ) -> tuple[tuple[Window, ...], dict[int, int]]:
        """Returns the tables of which a worker needs rows alone; and what of the payload is gradients of them."""
        effect_of = {v: e for e in effects for v in e.variables}
        read_here = {v for eqn in eqns.values() for v in variables(eqn.invars)}
        found: list[Window] = []
        rows_of: dict[int, int] = {}
        for number, own in self._input_of.items():
            effect = effect_of.get(number)
            if own not in read_here:
                continue
            gradients = [] if effect is None else [n for n in effect.payload if shapes[n].shape == own.aval.shape]
            if effect is not None and not (gradients and self._is_sparse(effect, number, read_here, sent, shapes)):
                continue
            others = {*variables(self._body.outvars[: self._results])}
            others |= {a for n, s in enumerate(sent) if n not in gradients for a in variables(_atoms([s]))}
            window = find_window(number, own, eqns, [sent[n] for n in gradients], others)
            if window is not None and not self._ids_need_tables(window):
                rows_of |= dict.fromkeys(gradients, len(found))
                found.append(window)
        return tuple(found), rows_of

    def _is_sparse(
        self, effect: Effect, table: int, read_here: Collection[Any], sent: Sequence[Any], shapes: Sequence[Any]
    ) -> bool:
        """Returns whether an effect works by rows, and leaves those without a gradient as they are."""
        shape = self._input_of[table].aval.shape
        slots = [self._input_of[n] for n in effect.variables if n != table]
        gradients = [i for i, n in enumerate(effect.payload) if shapes[n].shape == shape]
        if not effect.is_by_rows or any(slot in read_here for slot in slots):
            return False
        if any(_is_pair(sent[effect.payload[i]]) for i in gradients):
            return False
        held = [self._input_of[n].aval for n in effect.variables]
        return leaves_rows(effect.run, held, [shapes[n] for n in effect.payload], gradients)

    def _ids_need_tables(self, window: Window) -> bool:
        """Returns whether ids are computed from something that large: rows must be known before there are any."""
        ids = [atom for atom, _ in window.lookups]
        used = self._used(self._reached(ids, are_all=False), ids)
        variables_of = {v: n for n, v in self._input_of.items()}
        return any(self._body.invars[n] in variables_of and self._body.invars[n].aval.shape for n in used)

    def _ids(self, windows: Sequence[Window]) -> tuple[Callable[..., list[Array]] | None, tuple[int, ...]]:
        """Returns the program of the ids that a call looks up, and the inputs that it takes."""
        if not windows:
            return None, ()
        atoms = [ids for window in windows for ids, _ in window.lookups]
        eqns = self._reached(atoms, are_all=False)
        used = self._used(eqns, atoms)

        def ids(*inputs: Array) -> list[Array]:
            known = {**self._constants, **{self._body.invars[n]: x for n, x in zip(used, inputs, strict=True)}}
            evaluate(eqns, known, (), ())
            return [read(known, atom) for atom in atoms]

        return ids, used

    def _worker(
        self, sent: Sequence[Any], eqns: Mapping[int, Any], windows: Sequence[Window]
    ) -> tuple[Callable[..., list[Array]], tuple[int, ...]]:
        used = self._used(eqns, [*self._body.outvars[: self._results], *_atoms(sent)])

        def compute(*inputs: Array) -> list[Array]:
            known = {**self._constants, **{self._body.invars[n]: x for n, x in zip(used, inputs, strict=False)}}
            given = iter(inputs[len(used) :])
            evaluate(eqns, known, windows, [[next(given) for _ in w.lookups] for w in windows])
            results = [jnp.asarray(read(known, a), a.aval.dtype) for a in self._body.outvars[: self._results]]
            return results + [_value_of(known, s) for s in sent]

        return compute, used


def _is_pair(what: Any) -> bool:
    return isinstance(what, tuple)


def _atoms(sent: Iterable[Any]) -> list[Any]:
    return [atom for what in sent for atom in (what if _is_pair(what) else (what,))]


def _first(what: Any) -> Any:
    return what[1] if _is_pair(what) else what


def _value_of(known: Mapping[Any, Any], what: Any) -> Array:
    if _is_pair(what):
        new, old = what
        return (jnp.asarray(read(known, new), old.aval.dtype) - known[old]).astype(old.aval.dtype)
    return jnp.asarray(read(known, what), what.aval.dtype)


def _evaluate(eqn: Any, values: Sequence[Any], rows: int | None) -> list[Any]:
    """Applies an equation to whole arrays, or to a range of rows of them."""
    if rows is None or eqn.primitive.name != "broadcast_in_dim":
        return evaluate_equation(eqn, values)
    shape = eqn.params["shape"]
    if np.shape(values[0]):  # Of the variable's shape already.
        return [values[0]]
    return [jnp.broadcast_to(values[0], (rows, *shape[1:]))]


def demand_shippable(closed: Jaxpr, name: str) -> None:
    """Raises `UnsupportedError` for a function that calls Python while it runs."""
    from lockstep._engine.step.jaxprs import equations

    found = next((e.primitive.name for e in equations(closed) if "callback" in e.primitive.name), None)
    if found is not None:
        raise UnsupportedError(
            "Workers run what JAX has compiled, and have none of the program's Python. Received: "
            f"{name}, which calls Python while it runs ({found}). Do that in the dataset's map function, which the "
            "coordinator runs, or after `join`."
        )
