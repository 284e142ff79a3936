"""Products of a loop that are made once, of all rounds together, or with a matrix that lies better.

In each round `lax.scan` makes products of a few rows with a matrix that stays the same, as a recurrent layer does and
its gradient. Three things can be done about them:

* What is needed after the loop only, such as the gradient of a layer's input, is one product of all rounds' rows.
* Where rounds add up products, such as the gradient of a weight, there is one product over all rounds for the sum.
* A matrix that is read by its columns is transposed before the loop: XLA does it anew in each round.

What is known before the loop could be multiplied before it as well, but that was slower as often as faster: a loop
reads its part of an array of all rounds less well than it makes that part.

XLA's own against this (ms, float32, 2-core EPYC, 2 threads), gradients of an LSTM of 128 over 80 times: 1 row 2.4 and
1.7, 2 rows 9.4 and 2.5, 8 rows 17.9 and 8.1, 32 rows 29.5 and 24.8, 64 rows 53.2 and 49.3; of 512 over 40 times, 8 rows
124 and 45, 32 rows 187 and 120; of a GRU of 128 over 80 times, 8 rows 12.4 and 6.1, 64 rows 58.1 and 44.2. The median
of 78 gradients takes 0.77 of XLA's time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import FLOATS, has_free_sharding
from lockstep._cpu.lowerings.loop_body import Body, body_of, is_number, nbytes
from lockstep._engine.step.jaxprs import is_zero, variables
from lockstep._types import JaxprAtom, JaxprEquation

# Rows of a round with which it is faster: a product that is made later, a matrix that is transposed. More rows make
# good use of the machine by themselves, and one alone is read against columns.
_LATE_ROWS, _TRANSPOSE_ROWS = range(1, 97), range(2, 49)
# So many bytes of what the loop hands out for later at most, of all rounds.
_MOST_BYTES = 256 << 20
# What costs little beside a product, and may be done for all rounds together.
_ADDITIONS = frozenset(("add", "add_any"))
_LINEAR = _ADDITIONS | {"transpose", "reshape", "squeeze", "convert_element_type", "copy", "reduce_sum", "concatenate"}
_CHEAP = _LINEAR | {
    *("broadcast_in_dim", "slice", "split", "rev", "pad", "stop_gradient", "select_n", "not", "and"),
    *("or", "sub", "mul", "div", "neg", "max", "min", "abs", "sign", "square", "integer_pow"),
    *("tanh", "logistic", "exp", "log", "sqrt", "rsqrt", "eq", "ne", "lt", "le", "gt", "ge"),
}
_SHARDINGS = ("sharding", "out_sharding")
_LEAST_ROUNDS = 4


@dataclass(frozen=True)
class Term:
    """Summand that each round adds to a carried sum.

    Attributes:
        sources: Variables that are known of all rounds, with `None`; or results of products, each with its product.
        end: The result of linear steps from the sources.
    """

    sources: dict[Any, Any]
    end: Any

    @property
    def is_product(self) -> bool:
        """True if products make it."""
        return all(product is not None for product in self.sources.values())

    @property
    def operands(self) -> list[Any]:
        """The variables that have to be known of all rounds."""
        return [v for source, product in self.sources.items() for v in (product.invars if product else [source])]


@dataclass(frozen=True)
class Plan:
    """Work that is taken out of a loop.

    Attributes:
        transposed: Fixed matrices that are transposed before it.
        outputs: The numbers of the stacked outputs that are computed after it.
        sums: The terms of the carried sums that are taken after it, by number.
        saved: Variables that the loop hands out for that.
    """

    transposed: list[Any]
    outputs: list[int]
    sums: dict[int, list[Term]]
    saved: list[Any]

    @property
    def is_empty(self) -> bool:
        """True if nothing can be taken out."""
        return not (self.transposed or self.outputs or self.sums)


def make_plan(body: Body) -> Plan:
    """Decides what is done before and after a loop."""
    moved = _movable(body)
    outputs = [i for i, v in enumerate(body.stacked) if not is_number(v) and v in moved]
    saved = list(_inputs_of(body, moved))
    sums: dict[int, list[Term]] = {}
    # Twice: a sum of what other sums have saved costs nothing more.
    for _ in range(2):
        for i in range(len(body.carried)):
            terms = [] if i in sums else _terms(body, i)
            if terms and all(t.is_product or set(saved).issuperset(t.sources) for t in terms):
                sums[i] = terms
                operands = (v for term in terms for v in term.operands)
                saved += dict.fromkeys(v for v in operands if v not in (*body.rows, *saved))
    if sum(map(nbytes, saved)) * body.length > _MOST_BYTES:
        moved, outputs, sums, saved = set[Any](), [], {}, []
    return Plan(_transposable(body, moved), outputs, sums, saved)


def _movable(body: Body) -> set[Any]:
    """Returns variables that come of products with fixed matrices and are not needed in the loop."""
    waiting = set[int]()
    after = set(variables(body.after))
    for equation in reversed(body.equations):
        can_wait = _is_cheap(equation) or _rows(body, equation) in _LATE_ROWS
        users = (id(user) for v in equation.outvars for user in body.users.get(v, ()))
        if can_wait and after.isdisjoint(equation.outvars) and waiting.issuperset(users):
            waiting.add(id(equation))
    moved = set[Any]()
    for equation in body.equations:
        begins = _rows(body, equation) > 0 and equation.outvars[0] in body.late
        if id(equation) in waiting and (begins or not moved.isdisjoint(variables(equation.invars))):
            moved.update(equation.outvars)
    return moved


def _inputs_of(body: Body, moved: set[Any]) -> Iterator[Any]:
    """Yields what the moved equations need of each round."""
    seen = {*body.rows, *moved}
    for equation in body.equations:
        if not moved.isdisjoint(equation.outvars):
            new = [v for v in variables(equation.invars) if v in body.varying and v not in seen]
            seen.update(new)
            yield from dict.fromkeys(new)


def _transposable(body: Body, moved: set[Any]) -> list[Any]:
    """Returns fixed matrices that all products left in the loop read by their columns."""

    def is_read_by_columns(matrix: JaxprAtom) -> bool:
        left = [e for e in body.users.get(matrix, ()) if moved.isdisjoint(e.outvars)]
        return bool(left) and all(
            _rows(body, e) in _TRANSPOSE_ROWS
            and e.invars[1] is matrix
            and tuple(e.params["dimension_numbers"][0][1]) == (1,)
            for e in left
        )

    return [v for v in body.fixed if v.aval.ndim == 2 and is_read_by_columns(v)]


def _terms(body: Body, number: int) -> list[Term]:
    """Returns what each round adds to a carried value, if that is all that happens to it; or nothing."""
    start, end = body.carried[number], body.after[number]
    if is_number(end) or end is start or start.aval.dtype.name not in FLOATS:
        return []
    if body.uses(start) != 1 or body.uses(end) != 1:
        return []
    leaves = list(_summands(body, end))
    terms = [_term(body, leaf) for leaf in leaves if leaf is not start]
    found = [term for term in terms if term is not None]
    return found if len(found) == len(leaves) - 1 else []


def _summands(body: Body, variable: JaxprAtom) -> Iterator[Any]:
    operands = []
    if variable in body.maker and body.uses(variable) == 1:
        maker = body.maker[variable]
        operands = maker.invars if maker.primitive.name in _ADDITIONS else []
    if not operands or any(is_number(v) or v.aval.shape != variable.aval.shape for v in operands):
        yield variable
        return
    for operand in operands:
        yield from _summands(body, operand)


def _term(body: Body, end: JaxprAtom) -> Term | None:
    """Returns a summand with its sources, if all of them are products or none is."""
    sources = dict(_sources(body, end))
    products = [product for product in sources.values() if product is not None]
    all_or_none = len(products) in (0, len(sources))
    return Term(sources, end) if all_or_none and all(_adds_up(body, product) for product in products) else None


def _sources(body: Body, variable: JaxprAtom) -> Iterator[tuple[Any, Any]]:
    maker = body.maker.get(variable) if body.uses(variable) == 1 else None
    if maker is not None and _is_linear(maker):
        for operand in variables(maker.invars):
            yield from _sources(body, operand)
    else:
        yield variable, maker if maker is not None and _is_product(maker) else None


def _adds_up(body: Body, product: JaxprEquation) -> bool:
    """Returns whether one product of all rounds' rows is better than a sum of products."""
    (left, _), _ = product.params["dimension_numbers"]
    rows = math.prod(product.invars[0].aval.shape[i] for i in left)
    return rows in _LATE_ROWS and all(v in body.varying for v in product.invars)


def _is_linear(equation: JaxprEquation) -> bool:
    """Returns whether an operation is linear."""
    if equation.primitive.name == "pad":
        padded, margin = equation.invars
        return not is_number(padded) and is_zero(margin)
    if equation.primitive.name not in _LINEAR or not _is_cheap(equation) or any(map(is_number, equation.invars)):
        return False
    before, after = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    # A sum in a narrower type would be another one.
    return before == after or (before.name in FLOATS and after.name in FLOATS and before.itemsize < after.itemsize)


def _is_cheap(equation: JaxprEquation) -> bool:
    return equation.primitive.name in _CHEAP and all(equation.params.get(name) is None for name in _SHARDINGS)


def _rows(body: Body, equation: JaxprEquation) -> int:
    """Returns how many rows a product has with a matrix that stays the same; 0 if it is something else."""
    if not _is_product(equation):
        return 0
    varying = [i for i, v in enumerate(equation.invars) if v in body.varying]
    if len(varying) != 1:
        return 0
    contracted = equation.params["dimension_numbers"][0][varying[0]]
    shape = equation.invars[varying[0]].aval.shape
    return math.prod(size for i, size in enumerate(shape) if i not in contracted)


def _is_product(equation: JaxprEquation) -> bool:
    """Returns whether it is a product of matrices of floating-point numbers."""
    if equation.primitive is not lax.dot_general_p or any(map(is_number, equation.invars)):
        return False
    left, right = (v.aval for v in equation.invars)
    (contracted, _), (batched, _) = equation.params["dimension_numbers"]
    is_float = left.dtype == right.dtype and left.dtype.name in FLOATS
    return (
        is_float and bool(contracted) and not batched and has_free_sharding(left, equation.params.get("out_sharding"))
    )


def loop_products(*operands: Any, **params: Any) -> Any:
    """Rule: a `scan` with products that are better made before or after it, or with another matrix."""
    body = body_of(operands, params)
    if body is None or body.length < _LEAST_ROUNDS:
        return None
    plan = make_plan(body)
    return None if plan.is_empty else partial(_compute, body, plan)


def _compute(body: Body, plan: Plan, *operands: Any) -> list[Any]:
    """Computes the loop, and what is left for after it."""
    fixed, first, rows = body.split(operands)
    # The barrier keeps XLA from moving the transposition back into the loop.
    transposed = {v: lax.optimization_barrier(fixed[v].T) for v in plan.transposed}
    carries = [i for i in range(len(body.carried)) if i not in plan.sums]
    outputs = [i for i in range(len(body.stacked)) if i not in plan.outputs]
    wanted = [*(body.after[i] for i in carries), *(body.stacked[i] for i in outputs), *plan.saved]

    def one_round(carried: list[Any], parts: list[Any]) -> tuple[list[Any], list[Any]]:
        # XLA sees a product with a matrix that is transposed twice, and makes it with the one that lies there.
        known = fixed | {v: matrix.T for v, matrix in transposed.items()} | dict(zip(body.rows, parts, strict=True))
        known |= zip((body.carried[i] for i in carries), carried, strict=True)
        found = body.compute(wanted, known)
        return found[: len(carries)], found[len(carries) :]

    last, stacked = lax.scan(one_round, [first[i] for i in carries], list(rows.values()), **body.options)
    rows |= zip(plan.saved, stacked[len(outputs) :], strict=True)
    late = body.compute_together([body.stacked[i] for i in plan.outputs], fixed, rows)
    sums = [sum((_total(body, term, rows) for term in terms), first[i]) for i, terms in plan.sums.items()]
    carried = {**dict(zip(carries, last, strict=True)), **dict(zip(plan.sums, sums, strict=True))}
    results = {
        **dict(zip(outputs, stacked[: len(outputs)], strict=True)),
        **dict(zip(plan.outputs, late, strict=True)),
    }
    return [*(carried[i] for i in sorted(carried)), *(results[i] for i in sorted(results))]


def _total(body: Body, term: Term, rows: Mapping[Any, Any]) -> jax.Array:
    """Returns what all rounds add to a sum."""
    if not term.is_product:
        (each,) = body.compute_together([term.end], {}, {source: rows[source] for source in term.sources})
        return jnp.sum(each, 0)
    totals = {source: _product(product, rows) for source, product in term.sources.items()}
    return body.compute([term.end], totals)[0]


def _product(product: JaxprEquation, rows: Mapping[Any, Any]) -> jax.Array:
    """Returns the sum of a product over all rounds."""
    params = product.params
    summed, _ = params["dimension_numbers"]
    left, right = (_of_all_rounds(rows[v], axes) for v, axes in zip(product.invars, summed, strict=True))
    numbers = (((0,), (0,)), ((), ()))
    found = lax.dot_general(left, right, numbers, params["precision"], params["preferred_element_type"])
    return found.reshape(product.outvars[0].aval.shape)


def _of_all_rounds(value: jax.Array, summed: Sequence[int]) -> jax.Array:
    """Returns a matrix of summed axes by kept ones: in any other form XLA copies it before it multiplies."""
    leading = (0, *(axis + 1 for axis in summed))
    kept = (axis for axis in range(value.ndim) if axis not in leading)
    return value.transpose(*leading, *kept).reshape(math.prod(value.shape[axis] for axis in leading), -1)
