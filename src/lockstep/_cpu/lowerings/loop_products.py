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
124 and 45, 32 rows 187 and 120; of a GRU of 128 over 80 times, 8 rows 12.4 and 6.1, 64 rows 58.1 and 44.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.lowerings.convolution import is_varying
from lockstep._cpu.lowerings.loop_body import Body, body_of
from lockstep._cpu.lowerings.loop_plan import Plan, Term, planned

_LEAST_ROUNDS = 4


def loop_products(*operands: Any, **params: Any) -> Any:
    """Rule: a `scan` with products that are better made before or after it, or with another matrix."""
    body = body_of(params)
    if body is None or any(map(is_varying, operands)):
        return None
    if type(body.length) is not int or body.length < _LEAST_ROUNDS:  # An export may leave it open.
        return None
    plan = planned(body)
    return None if plan.is_empty else partial(_compute, body, plan)


def _compute(body: Body, plan: Plan, *operands: Any) -> list[Any]:
    """The loop, and what is left for after it."""
    values = iter(operands)
    fixed = {v: next(values) for v in body.fixed}
    first = [next(values) for _ in body.carried]
    rows = {v: next(values) for v in body.rows}
    turned = {v: lax.optimization_barrier(fixed[v].T) for v in plan.turned}
    carries = [i for i in range(len(body.carried)) if i not in plan.sums]
    outputs = [i for i in range(len(body.stacked)) if i not in plan.outputs]
    wanted = [*(body.after[i] for i in carries), *(body.stacked[i] for i in outputs), *plan.saved]

    def one(carried: list[Any], parts: list[Any]) -> tuple[list[Any], list[Any]]:
        # XLA sees a product with a matrix that is transposed twice, and makes it with the one that lies there.
        known = fixed | {v: matrix.T for v, matrix in turned.items()} | dict(zip(body.rows, parts, strict=True))
        known |= zip((body.carried[i] for i in carries), carried, strict=True)
        found = body.compute(wanted, known)
        return found[: len(carries)], found[len(carries) :]

    last, stacked = lax.scan(one, [first[i] for i in carries], list(rows.values()), **body.options)
    rows |= zip(plan.saved, stacked[len(outputs) :], strict=True)
    late = body.compute_together([body.stacked[i] for i in plan.outputs], fixed, rows)
    sums = [sum((_total(body, term, rows) for term in terms), first[i]) for i, terms in plan.sums.items()]
    carried = _numbered((carries, last), (plan.sums, sums))
    return [*carried, *_numbered((outputs, stacked[: len(outputs)]), (plan.outputs, late))]


def _numbered(*parts: tuple[Iterable[int], Sequence[Any]]) -> list[Any]:
    """Puts values that have numbers in order."""
    found = dict(pair for numbers, values in parts for pair in zip(numbers, values, strict=True))
    return [found[number] for number in sorted(found)]


def _total(body: Body, term: Term, rows: Mapping[Any, Any]) -> jax.Array:
    """What all rounds add to a sum."""
    if not term.is_product:
        (each,) = body.compute_together([term.end], {}, {source: rows[source] for source in term.sources})
        return jnp.sum(each, 0)
    totals = {source: _product(product, rows) for source, product in term.sources.items()}
    return body.compute([term.end], totals)[0]


def _product(product: Any, rows: Mapping[Any, Any]) -> jax.Array:
    """The sum of a product of all rounds."""
    params = product.params
    summed, _ = params["dimension_numbers"]
    left, right = (_of_all_rounds(rows[v], axes) for v, axes in zip(product.invars, summed, strict=True))
    numbers = (((0,), (0,)), ((), ()))
    found = lax.dot_general(left, right, numbers, params["precision"], params["preferred_element_type"])
    return found.reshape(product.outvars[0].aval.shape)


def _of_all_rounds(value: jax.Array, summed: Sequence[int]) -> jax.Array:
    """A matrix of what a product sums over by the rest: in any other form XLA copies it before it multiplies."""
    leading = (0, *(axis + 1 for axis in summed))
    kept = (axis for axis in range(value.ndim) if axis not in leading)
    return value.transpose(*leading, *kept).reshape(math.prod(value.shape[axis] for axis in leading), -1)
