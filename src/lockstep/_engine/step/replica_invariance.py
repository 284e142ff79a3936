"""Replica invariance: which results of a replica's computation may differ between the replicas.

Value numbering tells. A number stands for how a value is computed: the primitive, its parameters (with them shapes) and
the numbers of its inputs. So the jaxprs of two replicas can be compared although they differ in shapes or equations.
What is computed in the same way from inputs that are equal on all replicas is equal; the number of the replica is not,
nor is what depends on the size of a replica's shard; an all-reduce has the same number everywhere, whatever goes in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from lockstep._engine.step import backends
from lockstep._engine.step.jaxprs import (
    EQUALIZING,
    MUTATING,
    REPLICA_DEPENDENT,
    Equation,
    axes_of,
    called_jaxpr,
    equations,
    evaluate_stepwise,
    is_jaxpr,
    is_over,
    mentions,
    open_jaxpr,
    scan_counts,
    subjaxprs,
)
from lockstep._engine.step.program_digest import constant_digest
from lockstep._types import Array, Jaxpr

Tree = TypeVar("Tree")

# The names under which `mark_invariant`, `mark_varying` and `probe` appear in a jaxpr. A name changes nothing that is
# computed, and jax.grad, jax.vmap and jax.jit carry it on.
_INVARIANT = "lockstep: equal on all replicas"
_VARYING = "lockstep: each replica's own"
_PROBE = "lockstep: does this vary, "
_NOTHING: frozenset[int] = frozenset()


def mark_invariant(values: Tree) -> Tree:
    """Marks arrays as equal on all replicas, where their computation does not show it."""
    return jax.tree.map(lambda v: checkpoint_name(v, _INVARIANT), values)


def mark_varying(value: Array) -> Array:
    """Marks an array as each replica's own, also where all compute the same."""
    return checkpoint_name(value, _VARYING)


def probe(value: Array, key: str) -> Array:
    """Marks an array so that `find_varying` reports under `key` whether it varies."""
    return checkpoint_name(value, _PROBE + key)


def is_probe(eqn: Equation) -> bool:
    """Returns whether an equation is the mark of `probe`."""
    return eqn.primitive.name == "name" and str(eqn.params["name"]).startswith(_PROBE)


def find_varying(
    jaxprs: Jaxpr | Sequence[Jaxpr], inputs: Sequence[bool], axis: str, probes: dict[str, bool] | None = None
) -> list[bool]:
    """Returns which outputs may differ between the replicas.

    Args:
        jaxprs: The closed jaxpr of each replica, traced with `axis` in its environment, with the same number of
            outputs; or one for all.
        inputs: Which of their inputs may differ.
        axis: The mesh axis along which the replicas are.
        probes: Gets for each key of `probe` whether an array varies that is marked with it.
    """
    table = _Table()
    # Two replicas with the same jaxpr show what varies as well as a thousand.
    of_each = [jaxprs, jaxprs] if is_jaxpr(jaxprs) else jaxprs
    replicas = [_Replica(table, i, axis) for i in range(len(of_each))]
    numbers = [replica.number_outputs(jaxpr, inputs) for replica, jaxpr in zip(replicas, of_each, strict=True)]
    if probes is not None:
        first = replicas[0].probed
        probes.update({key: any(r.probed.get(key) != first[key] for r in replicas) for key in first})
    return [len(set(column)) > 1 for column in zip(*numbers, strict=True)]


class _Table:
    """The numbers of all values that are compared with each other."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        # With the object itself: an identity is good only as long as its object lives.
        self._constants: dict[int, tuple[Any, Hashable]] = {}

    def number(self, *key: Hashable) -> int:
        """Returns the number of a value that is computed like this; a new one for a new way."""
        return self._numbers.setdefault(key, len(self._numbers))

    def number_constant(self, value: Any) -> int:
        """Returns the number of a constant: equal contents have equal numbers."""
        if id(value) not in self._constants:
            digest = constant_digest(value) if hasattr(value, "dtype") else repr((type(value), value))
            key = ("object", id(value)) if digest == "unknown" else ("constant", digest)
            self._constants[id(value)] = value, key
        return self.number(*self._constants[id(value)][1:])


@dataclass(frozen=True)
class _Value:
    """A value of a jaxpr.

    Attributes:
        number: How it is computed.
        carries: The numbers of what open loops carry from iteration to iteration, as far as it depends on that.
    """

    number: int
    carries: frozenset[int] = _NOTHING


class _Replica:
    """Numbers the values of one replica's jaxprs.

    Attributes:
        probed: By key, the numbers of what is probed under it.
    """

    def __init__(self, table: _Table, replica: int, axis: str) -> None:
        self._table = table
        self._replica = replica
        self._axis = axis
        # How many values were numbered as this replica's alone, and as equal on all.
        self._varying = self._invariant = 0
        # How many jaxprs of loops and conditions are open: symbols of an inner one must not be those of an outer one.
        self._depth = 0
        self.probed: dict[str, list[int]] = {}

    def number_outputs(self, jaxpr: Jaxpr, inputs: Sequence[bool]) -> list[int]:
        """Returns the numbers of the outputs of a closed jaxpr, some of whose inputs may differ between replicas."""
        given = [self._new_varying() if own else self._table.number("argument", i) for i, own in enumerate(inputs)]
        if any(eqn.primitive.name in MUTATING for eqn in equations(jaxpr)):
            # All that can be said: without collectives the same jaxpr of the same inputs has the same outputs.
            is_own = mentions(jaxpr, self._axis)
            whole = self._new_varying() if is_own else self._table.number("object", id(jaxpr))
            return [self._table.number("mutating", whole, i, *given) for i in range(len(open_jaxpr(jaxpr).outvars))]
        return [value.number for value in self._evaluate(jaxpr, list(map(_Value, given)))]

    def _new_varying(self) -> int:
        """Returns a number that no other replica has."""
        self._varying += 1
        return self._table.number("own", self._replica, self._varying)

    def _new_invariant(self) -> int:
        """Returns a number that all replicas have that have come as far."""
        self._invariant += 1
        return self._table.number("equal", self._invariant)

    def _evaluate(self, jaxpr: Jaxpr, inputs: Sequence[_Value]) -> list[_Value]:
        """Returns the values that a jaxpr, closed or not, returns for such inputs."""
        # Values in place of arrays: constants and literals come as they are, and are numbered when they are used.
        steps = evaluate_stepwise(jaxpr, inputs)
        try:
            eqn, values = next(steps)
            while True:
                eqn, values = steps.send(list(self._number_equation(eqn, list(map(self._to_value, values)))))
        except StopIteration as end:
            return [self._to_value(value) for value in end.value]

    def _to_value(self, value: Any) -> _Value:
        return value if isinstance(value, _Value) else _Value(self._table.number_constant(value))

    def _number_equation(self, eqn: Equation, inputs: Sequence[_Value]) -> Sequence[_Value]:
        control: Mapping[str, Callable[[Any, Sequence[_Value]], Sequence[_Value]]] = {
            "scan": self._number_scan,
            "while": self._number_while,
            "cond": self._number_cond,
        }
        if eqn.primitive.name in control:
            return control[eqn.primitive.name](eqn.params, inputs)
        if (closed := called_jaxpr(eqn)) is not None:
            return self._evaluate(closed, inputs)
        number = self._number_by_rule(eqn, inputs)
        carries = _NOTHING if number is not None else _all_carries(inputs)
        if number is None:
            params = tuple((name, self._parameter_key(value)) for name, value in sorted(eqn.params.items()))
            number = self._table.number(eqn.primitive.name, params, *(v.number for v in inputs))
        return [_Value(self._table.number("output", number, i), carries) for i in range(len(eqn.outvars))]

    def _number_by_rule(self, eqn: Equation, inputs: Sequence[_Value]) -> int | None:
        """Returns the number of a marked, collective or replica-dependent result; `None` for all others."""
        name, params = eqn.primitive.name, eqn.params
        if name == "name":
            mark, number = params["name"], inputs[0].number
            if mark.startswith(_PROBE):
                self.probed.setdefault(mark.removeprefix(_PROBE), []).append(number)
            return self._new_invariant() if mark == _INVARIANT else self._new_varying() if mark == _VARYING else None
        if name == "ffi_call" and backends.is_all_reduce(params.get("target_name")):
            return self._new_invariant()
        if is_over(eqn, self._axis):
            # Of groups each has its own sum; axis None means that vmap has taken the place of the mesh axis.
            equalizes = name in EQUALIZING and params.get("axis_index_groups") is None and None not in axes_of(eqn)
            return self._new_invariant() if equalizes else self._new_varying()
        # A collective in a jaxpr that is not known to be called plainly: nothing is known of the results.
        inside = any(mentions(sub, self._axis) for sub in subjaxprs(eqn))
        return self._new_varying() if name in REPLICA_DEPENDENT or inside else None

    def _parameter_key(self, value: Any) -> Hashable:
        if is_jaxpr(value):
            # Compared by what it computes of symbols, not by its identity: each replica has traced its own.
            symbols = [
                _Value(self._table.number("input", self._depth, i)) for i in range(len(open_jaxpr(value).invars))
            ]
            return "jaxpr", tuple(v.number for v in self._evaluate_inside(value, symbols))
        if isinstance(value, (tuple, list)):
            return type(value).__name__, tuple(map(self._parameter_key, value))  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, np.ndarray):
            return self._table.number_constant(value)
        if isinstance(value, float):
            return repr(value)  # nan is not equal to itself.
        try:
            hash(value)
        except TypeError:
            return self._table.number_constant(value) if hasattr(value, "dtype") else ("object", id(value))
        return type(value), value

    def _evaluate_inside(self, jaxpr: Jaxpr, inputs: Sequence[_Value]) -> list[_Value]:
        self._depth += 1
        try:
            return self._evaluate(jaxpr, inputs)
        finally:
            self._depth -= 1

    def _carried_symbols(self, count: int) -> list[_Value]:
        numbers = [self._table.number("carried", self._depth, i) for i in range(count)]
        return [_Value(n, frozenset((n,))) for n in numbers]

    def _number_scan(self, params: Mapping[str, Any], inputs: Sequence[_Value]) -> Sequence[_Value]:
        fixed, count = scan_counts(params, len(inputs))
        consts, before, arrays = inputs[:fixed], inputs[fixed:][:count], inputs[fixed + count :]
        carried = self._carried_symbols(count)
        rows = [_Value(self._table.number("row", v.number), v.carries) for v in arrays]
        after = self._evaluate_inside(params["jaxpr"], [*consts, *carried, *rows])
        loop = _Loop(self._table, ("scan", params["length"], params["reverse"]), carried, before, after[:count])
        return [loop.carried(i) for i in range(count)] + [loop.stacked(v) for v in after[count:]]

    def _number_while(self, params: Mapping[str, Any], inputs: Sequence[_Value]) -> Sequence[_Value]:
        of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
        before = inputs[of_condition + of_body :]
        carried = self._carried_symbols(len(before))
        (condition,) = self._evaluate_inside(params["cond_jaxpr"], [*inputs[:of_condition], *carried])
        after = self._evaluate_inside(params["body_jaxpr"], [*inputs[of_condition:][:of_body], *carried])
        # How often it runs depends on the condition, and so do all results.
        loop = _Loop(self._table, ("while",), carried, before, after, [condition])
        return [loop.carried(i) for i in range(len(before))]

    def _number_cond(self, params: Mapping[str, Any], inputs: Sequence[_Value]) -> Sequence[_Value]:
        index, operands = inputs[0], inputs[1:]
        branches = [self._evaluate_inside(branch, operands) for branch in params["branches"]]
        columns = [[index, *column] for column in zip(*branches, strict=True)]
        return [_Value(self._table.number("cond", *(v.number for v in c)), _all_carries(c)) for c in columns]


class _Loop:
    """Numbers the results of a loop by the carried values on which each depends, not by all.

    So of a loop that carries a metric of each replica beside the weights, the weights are still invariant.
    """

    def __init__(
        self,
        table: _Table,
        kind: Sequence[Hashable],
        carried: Sequence[_Value],
        before: Sequence[_Value],
        after: Sequence[_Value],
        everywhere: Sequence[_Value] = (),
    ) -> None:
        self._table = table
        self._kind = kind
        self._indices = {value.number: i for i, value in enumerate(carried)}
        self._before = before
        self._after = after
        self._everywhere = everywhere

    def carried(self, index: int) -> _Value:
        """Returns a carried value at the end."""
        return self._number("carried", index, [index], ())

    def stacked(self, value: _Value) -> _Value:
        """Returns the stack of a value of the body over all iterations."""
        return self._number("rows", value.number, self._own(value.carries), [value])

    def _number(self, kind: str, which: int, starts: Iterable[int], more: Sequence[_Value]) -> _Value:
        needed, pending = set[int](), [*starts, *(i for v in self._everywhere for i in self._own(v.carries))]
        while pending:
            index = pending.pop()
            if index not in needed:
                needed.add(index)
                pending += self._own(self._after[index].carries)
        parts = [(i, self._before[i].number, self._after[i].number) for i in sorted(needed)]
        around = [v for i in needed for v in (self._before[i], self._after[i])]
        number = self._table.number(*self._kind, kind, which, *parts, *(v.number for v in self._everywhere))
        # What outer loops carry stays open; what this one carries ends with it.
        outer = _all_carries([*around, *more, *self._everywhere]) - self._indices.keys()
        return _Value(number, frozenset(outer))

    def _own(self, carries: Iterable[int]) -> list[int]:
        return [self._indices[c] for c in carries if c in self._indices]


def _all_carries(values: Iterable[_Value]) -> frozenset[int]:
    carries = [v.carries for v in values if v.carries]
    return frozenset(itertools.chain.from_iterable(carries)) if carries else _NOTHING
