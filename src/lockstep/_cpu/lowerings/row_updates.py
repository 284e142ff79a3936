"""Updates of tables of which a batch has looked up some rows: all others have no gradient.

The gradient of a lookup in a table of N rows is an array of N rows, all zero but those that the batch has looked up.
XLA makes it, and updates the whole table with it: for 100,000 x 32 float32 and 256 lookups Adagrad took 3.4 ms, which
is what its memory takes to be read and written. TensorFlow updates the rows of such an `IndexedSlices` alone. So do
these programs, in 0.08 ms: the rows that are touched are taken out, updated, and put back (2-core EPYC).

That an update leaves rows without gradient as they are is proved from its equations, for each variable by itself, not
known of optimizers by name: plain SGD and Adagrad pass, what has momentum does not. In the proof zero times anything is
zero, as it is for all finite numbers.

Where rows without gradient change (momentum, decay), the whole table is updated with a gradient of zero, and then the
rows that are touched are put in, as TensorFlow's optimizers do. That saves what it takes to write and to read the
gradient: a step of two towers (50,000 and 20,000 rows of 64, Adam) takes 5.6 ms, not 8.9 (2-core Xeon).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import primitives

from lockstep._cpu.lowerings.equations import call_instead, is_plain
from lockstep._engine.step.jaxprs import (
    evaluate_equation,
    evaluate_inlined,
    is_zero,
    open_jaxpr,
    read,
    variables,
    with_equations,
    writer_of,
    writers,
)
from lockstep._types import Jaxpr, JaxprAtom, JaxprEquation

# Of tables that lie in a core's cache the whole is updated as fast as some rows are found. To find one takes as long as
# to update some 200 numbers (2-core EPYC: 256 to 8,192 lookups in tables of 1 to 64 MB).
_SMALLEST = 1 << 18
_NUMBERS_PER_LOOKUP = 256
# Where the whole table is updated all the same, less is gained: Adam, 100,000x32, takes 0.78 of the time with 256
# lookups and 0.95 with 1,024, 20,000x64 with 1,024 lookups 1.07 (2-core Xeon).
_SMALLEST_MOVING = 1 << 20
_NUMBERS_PER_MOVING_LOOKUP = 2048
# What optimizers compute of each number by itself.
_ELEMENTWISE = frozenset(
    (
        *("abs", "add", "add_any", "and", "clamp", "convert_element_type", "copy", "div", "eq", "exp", "ge", "gt"),
        *("integer_pow", "is_finite", "le", "log", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow"),
        *("rsqrt", "select_n", "sign", "sqrt", "square", "stop_gradient", "sub", "tanh"),
    )
)
# Functions that are zero at zero.
_ZERO_AT_ZERO = frozenset(
    ("abs", "convert_element_type", "copy", "neg", "sign", "sqrt", "square", "stop_gradient", "tanh")
)
_CLIP = lax.GatherScatterMode.CLIP
_MODES = (_CLIP, lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.PROMISE_IN_BOUNDS)


@dataclass(frozen=True)
class _Lookup:
    """The gradient of a lookup: rows that are added to a table of zeros.

    Attributes:
        equation: Makes the gradient; the scatter itself, or a call of a function that ends in it.
        scatter: The scatter.
    """

    equation: JaxprEquation
    scatter: JaxprEquation

    @property
    def gradient(self) -> Any:
        """The variable of the gradient."""
        return self.equation.outvars[0]

    @property
    def inputs(self) -> Sequence[JaxprAtom]:
        """Lists the operands that places and rows are computed from."""
        return self.equation.invars[1:] if self.equation is self.scatter else self.equation.invars

    @property
    def count(self) -> int:
        """The number of rows that are added."""
        return math.prod(self.scatter.invars[1].aval.shape[:-1])

    def rows(self, values: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
        """Returns the number in the table, and the summand, of each row; those that are dropped have number N."""
        places, summands = values if self.equation is self.scatter else self._evaluate(values)
        size, *row = self.gradient.aval.shape
        places = places.reshape(-1)
        if self.scatter.params["mode"] == _CLIP:
            places = jnp.clip(places, 0, size - 1)
        outside = (places < 0) | (places >= size)
        return jnp.where(outside, size, places.astype(jnp.int32)), summands.reshape(-1, *row)

    def _evaluate(self, values: Sequence[Any]) -> list[Any]:
        body = open_jaxpr(self.equation.params["jaxpr"])
        known = dict(zip(body.invars, values, strict=True))
        evaluate_inlined(takewhile(lambda equation: equation is not self.scatter, body.eqns), known)
        return [read(known, atom) for atom in self.scatter.invars[1:]]


@dataclass(frozen=True)
class _Update:
    """The update of a table, and of what belongs to it, in which each row depends on its own gradient alone.

    Attributes:
        lookups: Where its gradient comes from.
        equations: What computes it, of whole tables.
        own: Those of them that nothing else needs.
        inputs: The tables before it, and scalars.
        results: The tables after it, and which of the inputs each is where there is no gradient; `None` where rows
            without gradient change, too.
    """

    lookups: Sequence[_Lookup]
    equations: Sequence[JaxprEquation]
    own: Sequence[JaxprEquation]
    inputs: Sequence[Any]
    results: Mapping[Any, Any | None]

    @property
    def atoms(self) -> list[JaxprAtom]:
        """Lists the operands of `compute`."""
        return [*(atom for lookup in self.lookups for atom in lookup.inputs), *self.inputs]

    def compute(self, *values: Any) -> list[jax.Array]:
        """Returns the tables after the update."""
        left = list(values)
        pairs = [lookup.rows([left.pop(0) for _ in lookup.inputs]) for lookup in self.lookups]
        before = dict(zip(self.inputs, left, strict=True))
        size = self.lookups[0].gradient.aval.shape[0]
        numbers, places = _distinct(jnp.concatenate([numbers for numbers, _ in pairs]), size)
        # Numbers beyond the table's end stand where there is no row: what is read there is never written.
        rows = {v: a.at[numbers].get(mode="clip") if a.ndim else a for v, a in before.items()}
        zero = _zero_after([a for v, a in rows.items() if before[v].ndim])
        for lookup, (_, summands) in zip(self.lookups, pairs, strict=True):
            here, places = places[: len(summands)], places[len(summands) :]
            zeros = jnp.zeros((len(numbers), *summands.shape[1:]), summands.dtype)
            rows[lookup.gradient] = zeros.at[here].add(summands)
        evaluate_inlined(self.equations, rows, _of_rows(len(numbers)))
        return self._put_into_tables(before, zero, numbers, rows)

    def _put_into_tables(
        self, before: Mapping[Any, Any], zero: jax.Array, numbers: jax.Array, rows: Mapping[Any, Any]
    ) -> list[jax.Array]:
        """Returns the tables after the update, given the rows that have a gradient."""
        known, inexact = dict(before), {lookup.gradient for lookup in self.lookups}
        known.update({v: jnp.full(v.aval.shape, zero, v.aval.dtype) for v in inexact})
        for equation in self.equations:
            evaluate_inlined([equation], known)
            if inexact.isdisjoint(variables(equation.invars)):
                continue
            for result in equation.outvars:
                if result not in self.results:
                    inexact.add(result)
                    continue
                # What is computed of a table after it has its rows needs none of its own: Adam's variables.
                table = known[self.results[result] or result]
                known[result] = table.at[numbers].set(rows[result], mode="drop", indices_are_sorted=True)
        return [known[result] for result in self.results]


def _zero_after(arrays: Sequence[jax.Array]) -> jax.Array:
    """Returns a zero of which XLA does not know that it is one, computed of arrays."""
    # XLA updates a table in place where it is certain that its old rows have been read. Else it copies it first: a step
    # of two towers with Adam took 27 ms, not 5.6.
    firsts = [jnp.real(array[(0,) * array.ndim]) for array in arrays]
    return jnp.where(jnp.any(jnp.stack([(first < 0) & (first > 0) for first in firsts])), 1.0, 0.0)


def update_rows(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program that updates tables by rows where it can; the same object if it can nowhere."""
    body = open_jaxpr(jaxpr)
    lookups = {found.gradient: found for found in _lookups(body)}
    equations = list(body.eqns)
    for update in _updates(body, lookups):
        equations = _replace(body, equations, update) or equations
    return with_equations(jaxpr, equations)


def _lookups(body: Any) -> Iterator[_Lookup]:
    for equation in body.eqns:
        if not is_plain(equation):
            continue
        if equation.primitive is primitives.scatter_add_p:
            inside = body
        elif equation.primitive is primitives.jit_p and len(equation.outvars) == 1:
            inside = open_jaxpr(equation.params["jaxpr"])
        else:
            continue
        scatter = equation if inside is body else writer_of(inside.outvars[0], writers(inside))
        if scatter is not None and _adds_rows_to_zeros(inside, scatter):
            found = _Lookup(equation, scatter)
            if _is_large([found], _SMALLEST, _NUMBERS_PER_LOOKUP):
                yield found


def _is_large(lookups: Sequence[_Lookup], smallest: int, numbers_per_lookup: int) -> bool:
    """Returns whether a table has so many numbers, and so many for each lookup."""
    count = sum(lookup.count for lookup in lookups)
    return math.prod(lookups[0].gradient.aval.shape) >= max(smallest, numbers_per_lookup * count)


def _adds_rows_to_zeros(body: Any, scatter: JaxprEquation) -> bool:
    """Returns whether an equation adds whole rows, by their numbers, to an array of zeros."""
    if scatter.primitive is not primitives.scatter_add_p:
        return False
    operand, _, summands = (atom.aval for atom in scatter.invars)
    numbers, row = scatter.params["dimension_numbers"], operand.shape[1:]
    zeros = writer_of(scatter.invars[0], writers(body))
    return (
        operand.ndim > 0
        and scatter.params["mode"] in _MODES
        and numbers.inserted_window_dims == numbers.scatter_dims_to_operand_dims == (0,)
        and not getattr(numbers, "operand_batching_dims", ())
        and tuple(numbers.update_window_dims) == tuple(range(summands.ndim - len(row), summands.ndim))
        and summands.shape[summands.ndim - len(row) :] == row
        and zeros is not None
        and zeros.primitive is lax.broadcast_in_dim_p
        and is_zero(zeros.invars[0])
    )


def _updates(body: Any, lookups: Mapping[Any, _Lookup]) -> Iterator[_Update]:
    """Yields the updates that can be made by rows."""
    left = dict(lookups)
    while left:
        together = {next(iter(left))}
        while True:
            following, escaping = _followers(body, together)
            # A table that is looked up twice has the sum of two gradients.
            more = {v for e in following for v in variables(e.invars) if v in left} - together
            if not more:
                break
            together |= more
        update = _made_by_rows(body, [left.pop(v) for v in sorted(together, key=list(left).index)], following, escaping)
        if update is not None:
            yield update


def _followers(body: Any, gradients: set[Any]) -> tuple[list[JaxprEquation], list[Any]]:
    """Returns what is computed row by row from gradients, and which variables anything else uses."""
    shape = next(iter(gradients)).aval.shape
    made, following, escaping = set(gradients), [], {}
    for equation in body.eqns:
        used = [v for v in variables(equation.invars) if v in made]
        if used and _is_row_wise(equation, shape):
            following.append(equation)
            made.update(equation.outvars)
        else:
            escaping.update(dict.fromkeys(used))
    escaping.update(dict.fromkeys(v for v in variables(body.outvars) if v in made))
    return following, list(escaping)


def _made_by_rows(
    body: Any, lookups: Sequence[_Lookup], following: Sequence[JaxprEquation], escaping: Sequence[Any]
) -> _Update | None:
    """Returns the update that these equations are; `None` if it takes as long by rows."""
    shape = lookups[0].gradient.aval.shape
    made_by = writers(body)
    needed, waiting = {id(e) for e in following}, [v for e in following for v in variables(e.invars)]
    while waiting:
        # What is computed of a table before the gradient joins in, such as its decay, is computed of the rows, too.
        maker = made_by.get(waiting.pop())
        if maker is not None and id(maker) not in needed and _is_row_wise(maker, shape):
            needed.add(id(maker))
            waiting += variables(maker.invars)
    equations = [e for e in body.eqns if id(e) in needed]
    gradients = {lookup.gradient for lookup in lookups}
    made = gradients.union(*(e.outvars for e in equations))
    inputs = list(dict.fromkeys(v for e in equations for v in variables(e.invars) if v not in made))
    known: dict[Any, Any] = {**{v: _Same(v) for v in inputs}, **dict.fromkeys(gradients, 0.0)}
    evaluate_inlined(equations, known, _without_gradient)
    # A gradient that something else needs, such as its norm, is a whole table in any case.
    if not escaping or any(_is_known_number(known[v]) for v in escaping):
        return None
    results = {v: known[v].variable if _is_table(known[v], shape) else None for v in escaping}
    is_small = not _is_large(lookups, _SMALLEST_MOVING, _NUMBERS_PER_MOVING_LOOKUP)
    if None in results.values() and (is_small or all(v.aval.shape != shape for v in inputs)):
        return None
    return _Update(lookups, equations, following, inputs, results)


def _is_row_wise(equation: JaxprEquation, shape: tuple[int, ...]) -> bool:
    """Returns whether an equation makes tables of this shape of others and of scalars, each number by itself."""
    if equation.effects or any(v.aval.shape != shape for v in equation.outvars):
        return False
    if equation.primitive is lax.broadcast_in_dim_p:
        return not equation.invars[0].aval.shape
    if any(atom.aval.shape not in ((), shape) for atom in equation.invars):
        return False
    return _is_elementwise(equation, shape)


def _is_elementwise(equation: JaxprEquation, shape: tuple[int, ...]) -> bool:
    if equation.primitive is not primitives.jit_p:
        return equation.primitive.name in _ELEMENTWISE
    inside = open_jaxpr(equation.params["jaxpr"])
    return not inside.constvars and all(
        _is_row_wise(e, shape) or (_is_row_wise(e, ()) and _is_elementwise(e, ())) for e in inside.eqns
    )


def _of_rows(count: int) -> Callable[[JaxprEquation, Sequence[Any]], Sequence[Any]]:
    """Returns what computes an equation of whole tables for so many rows."""

    def apply(equation: JaxprEquation, values: Sequence[Any]) -> Sequence[Any]:
        if equation.primitive is lax.broadcast_in_dim_p:
            shape = equation.outvars[0].aval.shape
            return [jnp.broadcast_to(values[0], (count, *shape[1:]) if shape else ())]
        return evaluate_equation(equation, values)

    return apply


@dataclass(frozen=True)
class _Same:
    """A value that is an input, unchanged."""

    variable: Any


def _is_table(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, _Same) and value.variable.aval.shape == shape


def _without_gradient(equation: JaxprEquation, values: Sequence[Any]) -> Sequence[Any]:
    """Returns what an equation makes where gradients are zero: a number, an input, or something else."""
    return [_at_zero(equation, values)]


def _at_zero(equation: JaxprEquation, values: Sequence[Any]) -> Any:
    name, first, last = equation.primitive.name, values[0], values[-1]
    keeps_type = equation.outvars[0].aval.dtype == equation.invars[-1].aval.dtype
    if name in ("broadcast_in_dim", "copy", "stop_gradient") or (name == "convert_element_type" and keeps_type):
        return first
    if _is_zero(first) and (name in _ZERO_AT_ZERO or (name == "integer_pow" and equation.params["y"] > 0)):
        return 0.0
    if (name == "mul" and any(map(_is_zero, values))) or (name == "div" and _is_zero(first) and not _is_zero(last)):
        return 0.0
    if name in ("add", "add_any") and any(map(_is_zero, values)):
        return last if _is_zero(first) else first
    if name == "sub" and _is_zero(last):
        return first
    if name == "select_n" and all(case == values[1] for case in values[2:]):
        return values[1]
    if name in ("max", "min", "clamp") and all(map(_is_known_number, values)):
        middle = sorted(map(float, values))
        return {"max": middle[-1], "min": middle[0], "clamp": middle[len(middle) // 2]}[name]
    return object()


def _is_known_number(value: Any) -> bool:
    return not isinstance(value, _Same) and type(value) is not object and jnp.ndim(value) == 0


def _is_zero(value: Any) -> bool:
    return _is_known_number(value) and float(value) == 0


def _distinct(numbers: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Returns each number once, in order, then `size` as often as there are places left; and where each number went."""
    count = len(numbers)
    ordered, came_from = lax.sort((numbers, lax.iota(jnp.int32, count)), num_keys=1)
    is_new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    places = jnp.cumsum(is_new.astype(jnp.int32)) - 1
    distinct = jnp.full(count, size, jnp.int32).at[places].set(ordered, indices_are_sorted=True)
    return distinct, jnp.zeros(count, jnp.int32).at[came_from].set(places, unique_indices=True)


def _replace(body: Any, equations: Sequence[JaxprEquation], update: _Update) -> list[JaxprEquation] | None:
    """Returns the equations of a program with one in place of an update; `None` if it would need its own results."""
    gone, model = set(map(id, update.own)), update.own[0]
    wide = model.replace(invars=update.atoms, outvars=list(update.results))
    made = call_instead(wide, update.compute)
    return _in_order({*body.invars, *body.constvars}, [*(e for e in equations if id(e) not in gone), made])


def _in_order(defined: set[Any], equations: Sequence[JaxprEquation]) -> list[JaxprEquation] | None:
    """Returns equations so that each comes after what it uses; `None` if there is no such order."""
    ordered: list[JaxprEquation] = []
    waiting = list(equations)
    while waiting:
        late = []
        for equation in waiting:
            if all(v in defined for v in variables(equation.invars)):
                ordered.append(equation)
                defined.update(equation.outvars)
            else:
                late.append(equation)
        if len(late) == len(waiting):
            return None
        waiting = late
    return ordered
