"""Value numbering of jaxprs: values with equal numbers are computed in the same way from the same inputs.

A number stands for how a value is computed: the primitive, its parameters (with them shapes), and the numbers of what
it is given. So two replicas' records can be compared although they differ in shapes, or in their equations. What
equalises (a sum over all replicas) has the same number on all of them, whatever goes into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax.extend.core as jex
import numpy as np

from lockstep._engine.step.jaxprs import called, is_jaxpr, opened, scan_counts
from lockstep._engine.step.same_program import digest_of

_NOTHING: frozenset[int] = frozenset()


class Table:
    """The numbers of all values that are compared with each other."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        # Constants by their identity, with the object itself: an identity is good only as long as its object lives.
        self._constants: dict[int, tuple[Any, Hashable]] = {}

    def number(self, *key: Hashable) -> int:
        """Returns the number of a value that is computed like this; a new one for a new way."""
        return self._numbers.setdefault(key, len(self._numbers))

    def constant(self, value: Any) -> int:
        """Returns the number of a constant: equal contents have equal numbers."""
        if id(value) not in self._constants:
            digest = digest_of(value) if hasattr(value, "dtype") else repr((type(value), value))
            key = ("object", id(value)) if digest == "unknown" else ("constant", digest)
            self._constants[id(value)] = value, key
        return self.number(*self._constants[id(value)][1:])


@dataclass(frozen=True)
class Value:
    """A value of a jaxpr.

    Attributes:
        number: How it is computed.
        carries: The numbers of what open loops carry from round to round, as far as it depends on that.
    """

    number: int
    carries: frozenset[int] = _NOTHING


class Rules(Protocol):
    """How one replica numbers equations that are not computed from their inputs alone."""

    def number(self, eqn: Any, inputs: Sequence[Value]) -> int | None:
        """Returns the number of what an equation computes; `None`: its primitive, parameters and inputs say it."""
        ...


class Numbering:
    """Numbers the values of one replica's jaxprs.

    Args:
        table: Shared by all that are compared.
        rules: Of this replica.
    """

    def __init__(self, table: Table, rules: Rules) -> None:
        self._table = table
        self._rules = rules
        self._depth = 0

    def outputs(self, jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
        """Returns the values that a jaxpr, closed or not, returns for such inputs."""
        consts, body = getattr(jaxpr, "consts", ()), opened(jaxpr)
        values: dict[Any, Value] = {
            var: Value(self._table.constant(value)) for var, value in zip(body.constvars, consts, strict=False)
        }
        values.update(zip(body.invars, inputs, strict=True))

        def read(atom: Any) -> Value:
            return Value(self._table.constant(atom.val)) if isinstance(atom, jex.Literal) else values[atom]

        for eqn in body.eqns:
            values.update(zip(eqn.outvars, self._of_equation(eqn, [read(v) for v in eqn.invars]), strict=True))
        return [read(v) for v in body.outvars]

    def _of_equation(self, eqn: Any, inputs: Sequence[Value]) -> Sequence[Value]:
        plan: Mapping[str, Callable[[Any, Sequence[Value]], Sequence[Value]]] = {
            "scan": self._scan,
            "while": self._while,
            "cond": self._cond,
        }
        if eqn.primitive.name in plan:
            return plan[eqn.primitive.name](eqn, inputs)
        if (closed := called(eqn)) is not None:
            return self.outputs(closed, inputs)
        number = self._rules.number(eqn, inputs)
        carries = _NOTHING if number is not None else _carries(inputs)
        if number is None:
            params = tuple((name, self._parameter(value)) for name, value in sorted(eqn.params.items()))
            number = self._table.number(eqn.primitive.name, params, *(v.number for v in inputs))
        return [Value(self._table.number("output", number, i), carries) for i in range(len(eqn.outvars))]

    def _parameter(self, value: Any) -> Hashable:
        if is_jaxpr(value):
            with_symbols = [
                Value(self._table.number("input", self._depth, i)) for i in range(len(opened(value).invars))
            ]
            return "jaxpr", tuple(v.number for v in self._inside(value, with_symbols))
        if isinstance(value, (tuple, list)):
            return type(value).__name__, tuple(map(self._parameter, value))  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, np.ndarray):
            return self._table.constant(value)
        if isinstance(value, float):
            return repr(value)  # Of nan, which is not equal to itself.
        try:
            hash(value)
        except TypeError:
            return self._table.constant(value) if hasattr(value, "dtype") else ("object", id(value))
        return type(value), value

    def _inside(self, jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
        self._depth += 1
        try:
            return self.outputs(jaxpr, inputs)
        finally:
            self._depth -= 1

    def _symbols(self, kind: str, count: int) -> list[Value]:
        numbers = [self._table.number(kind, self._depth, i) for i in range(count)]
        return [Value(n, frozenset((n,))) for n in numbers]

    def _scan(self, eqn: Any, inputs: Sequence[Value]) -> Sequence[Value]:
        params = eqn.params
        fixed, count = scan_counts(params, len(inputs))
        consts, before, arrays = inputs[:fixed], inputs[fixed:][:count], inputs[fixed + count :]
        carried = self._symbols("carried", count)
        rows = [Value(self._table.number("row", v.number), v.carries) for v in arrays]
        after = self._inside(params["jaxpr"], [*consts, *carried, *rows])
        loop = _Loop(self._table, ("scan", params["length"], params["reverse"]), carried, before, after[:count])
        return [loop.carried(i) for i in range(count)] + [loop.value("rows", v) for v in after[count:]]

    def _while(self, eqn: Any, inputs: Sequence[Value]) -> Sequence[Value]:
        of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        asked, fixed = inputs[:of_condition], inputs[of_condition:][:of_body]
        before = inputs[of_condition + of_body :]
        carried = self._symbols("carried", len(before))
        (condition,) = self._inside(eqn.params["cond_jaxpr"], [*asked, *carried])
        after = self._inside(eqn.params["body_jaxpr"], [*fixed, *carried])
        loop = _Loop(self._table, ("while",), carried, before, after, [condition])
        return [loop.carried(i) for i in range(len(before))]

    def _cond(self, eqn: Any, inputs: Sequence[Value]) -> Sequence[Value]:
        which, given = inputs[0], inputs[1:]
        branches = [self._inside(branch, given) for branch in eqn.params["branches"]]
        return [
            Value(self._table.number("cond", which.number, *(v.number for v in found)), _carries([which, *found]))
            for found in zip(*branches, strict=True)
        ]


class _Loop:
    """Numbers the results of a loop by the carried values on which each depends.

    Args:
        table: Of numbers.
        kind: What else the loop is.
        carried: Stands for what is carried, in the body.
        before: What it is at first.
        after: What the body makes of it.
        everywhere: What all results depend on.
    """

    def __init__(
        self,
        table: Table,
        kind: Sequence[Hashable],
        carried: Sequence[Value],
        before: Sequence[Value],
        after: Sequence[Value],
        everywhere: Sequence[Value] = (),
    ) -> None:
        self._table = table
        self._kind = kind
        self._places = {value.number: i for i, value in enumerate(carried)}
        self._before = before
        self._after = after
        self._everywhere = everywhere

    def carried(self, place: int) -> Value:
        """Returns what is carried at the end."""
        return self._made("carried", place, [place], ())

    def value(self, kind: str, value: Value) -> Value:
        """Returns what all rounds together make of a value of the body."""
        return self._made(kind, value.number, self._own(value.carries), [value])

    def _made(self, kind: str, which: int, starts: Iterable[int], more: Sequence[Value]) -> Value:
        needed, open_ = set[int](), [*starts, *(p for v in self._everywhere for p in self._own(v.carries))]
        while open_:
            place = open_.pop()
            if place not in needed:
                needed.add(place)
                open_ += self._own(self._after[place].carries)
        parts = [(p, self._before[p].number, self._after[p].number) for p in sorted(needed)]
        around = [v for p in needed for v in (self._before[p], self._after[p])]
        number = self._table.number(*self._kind, kind, which, *parts, *(v.number for v in self._everywhere))
        outer = _carries([*around, *more, *self._everywhere]) - self._places.keys()
        return Value(number, frozenset(outer))

    def _own(self, carries: Iterable[int]) -> list[int]:
        return [self._places[c] for c in carries if c in self._places]


def _carries(values: Iterable[Value]) -> frozenset[int]:
    found = [v.carries for v in values if v.carries]
    return frozenset(itertools.chain.from_iterable(found)) if found else _NOTHING
