"""Finds what an optimizer does with the gradient of a kernel, where all of it can be done element by element.

The gradient is a product; each new weight and each slot depends on its own element alone. Then one kernel makes a part
of the product and everything that comes of it, while it is in registers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep._native.update import Operation, is_known, written
from lockstep._step.native_products import Product
from lockstep._step.partition.flat import Constant, Equation, Value
from lockstep._step.partition.uses import Uses

# A kernel's elements, with which it pays; examples, beyond which XLA's product is as fast.
_LEAST_ELEMENTS, _LEAST_COLUMNS, _MOST_SUMMED = 1 << 11, 8, 512
# Arrays that are read or written in turn.
_MOST_ARRAYS = 8


@dataclass(frozen=True, eq=False)
class Update:
    """What is made of a gradient.

    Attributes:
        product: The gradient's, of (k, m) and (k, n) in this order.
        equations: What it replaces.
        arrays, numbers: What it reads.
        results: What it makes, and others need.
        replaced: Numbers of results by numbers of the arrays whose place they may take.
        text: Of `update.h`.
    """

    product: Product
    equations: tuple[Equation, ...]
    arrays: tuple[Value, ...]
    numbers: tuple[Value, ...]
    results: tuple[Value, ...]
    replaced: Mapping[int, int]
    text: str


def update_of(uses: Uses, equation: Equation, product: Product, pairs: Mapping[Value, Value]) -> Update | None:
    """Returns what is made of the gradient that an equation computes; `None` if that is better left to XLA.

    Args:
        uses: Of the step.
        equation: One of its equations.
        product: What that is.
        pairs: The input whose place an output takes in the next step, by output.
    """
    if not product.turned_left or product.turned_right or product.k > _MOST_SUMMED:
        return None
    gradient, first, product = _as_used(uses, equation, product)
    if product.m * product.n < _LEAST_ELEMENTS or product.n < _LEAST_COLUMNS:
        return None
    members = _members(uses, gradient)
    equations = (*first, *members)
    made = {v for member in members for v in member.outputs} | {gradient}
    results = tuple(v for v in (gradient, *(m.outputs[0] for m in members)) if uses.is_needed_beside(v, equations))
    read = [v for v in dict.fromkeys(v for m in members for v in m.inputs) if v not in made]
    outside = [v for v in read if not isinstance(v, Constant)]
    arrays = tuple(v for v in outside if v.aval.shape)
    if not members or not results or max(len(arrays), len(results)) > _MOST_ARRAYS:
        return None
    if any(v.aval.dtype.name != "float32" for v in (*arrays, *results)) or _comes_back(uses, equations, results):
        return None
    # What the product reads as well stays until all of it has been made.
    free = {v: i for i, v in enumerate(arrays) if v not in (product.left, product.right)}
    replaced = {free[pairs[v]]: i for i, v in enumerate(results) if pairs.get(v) in free}
    if not replaced:  # It is not what the next step begins with, and something else is waiting for it.
        return None
    numbers = tuple(v for v in outside if not v.aval.shape)
    text = written(gradient, arrays, numbers, [_operation(member) for member in members], results)
    return Update(product, equations, arrays, numbers, results, replaced, text)


def _as_used(uses: Uses, equation: Equation, product: Product) -> tuple[Value, list[Equation], Product]:
    """The gradient as the weights lie. Differentiation makes it transposed, and turns it then."""
    turn = uses.turn(product.out)
    if turn is None:
        return product.out, [equation], product
    rank = product.out.aval.ndim
    own = rank - product.axes
    if tuple(turn.params["permutation"]) != (*range(own, rank), *range(own)):
        return product.out, [equation], product
    (turned,) = turn.outputs
    swapped = replace(product, left=product.right, right=product.left, m=product.n, n=product.m, axes=own, out=turned)
    return turned, [equation, turn], swapped


def _members(uses: Uses, gradient: Value) -> list[Equation]:
    """What is done to each element of the gradient, and what is needed for nothing else, in order."""
    shape = gradient.aval.shape
    found = set[Equation]()
    inside = {gradient}

    def add(equation: Equation) -> None:
        found.add(equation)
        inside.update(equation.outputs)

    coming = [gradient]
    while coming:
        for user in uses.users(coming.pop()):
            if user not in found and _is_elementwise(user, shape, inside):
                add(user)
                coming.extend(user.outputs)
    waiting = [v for equation in found for v in equation.inputs]
    while waiting:
        value = waiting.pop()
        maker = None if value in inside else uses.maker(value)
        if maker is None or uses.is_needed_beside(value, found) or not _is_elementwise(maker, shape, inside):
            continue
        add(maker)
        waiting.extend(maker.inputs)
    return sorted(found, key=uses.place)


def _is_elementwise(equation: Equation, shape: tuple[int, ...], inside: Collection[Value]) -> bool:
    if len(equation.outputs) != 1 or not is_known(equation.primitive.name, equation.params):
        return False
    (out,) = equation.outputs
    if out.aval.shape != shape or not _is_number(out) or equation.context is not None:
        return False
    if equation.primitive.name == "convert_element_type" and out.aval.dtype.name != "float32":
        return False
    if equation.primitive.name == "select_n" and len(equation.inputs) != 3:
        return False
    return all(_is_taken(value, shape, inside) for value in equation.inputs)


def _is_taken(value: Value, shape: tuple[int, ...], inside: Collection[Value]) -> bool:
    if isinstance(value, Constant):
        return np.ndim(value.value) == 0 and _is_number(value)
    if not value.aval.shape:
        return _is_number(value)
    is_own = value in inside and _is_number(value)
    return value.aval.shape == shape and (is_own or value.aval.dtype.name == "float32")


def _is_number(value: Value) -> bool:
    return value.aval.dtype.name in ("float32", "bool")


def _comes_back(uses: Uses, equations: Collection[Equation], results: Sequence[Value]) -> bool:
    """Whether some of it needs what others make of its results, as with a norm of the whole gradient."""
    own, late = set(equations), set(results)
    for equation in uses.equations:
        if equation not in own and not late.isdisjoint(equation.inputs):
            late.update(equation.outputs)
    late.difference_update(v for equation in equations for v in equation.outputs)
    return any(not late.isdisjoint(equation.inputs) for equation in equations)


def _operation(equation: Equation) -> Operation:
    inputs: tuple[Any, ...] = tuple(
        np.asarray(v.value).astype(np.float32)[()] if isinstance(v, Constant) else v for v in equation.inputs
    )
    return Operation(equation.primitive.name, equation.params, inputs, equation.outputs[0])
