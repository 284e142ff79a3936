"""What a loop can be spared: a plan, made of the body of a `lax.scan` as it is recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax import lax

from lockstep._xla.canonical import FLOATS, is_free
from lockstep._xla.loop_body import Body, is_number, nbytes, variables

# Rows of a round with which it is faster: a product that is made later, a matrix that is transposed. More rows make
# good use of the machine by themselves, and one alone is read against columns.
_LATE_ROWS, _TURN_ROWS = range(1, 97), range(2, 49)
# So many bytes of what the loop hands out for later at most, of all rounds.
_MOST_BYTES = 256 << 20
# What costs little beside a product, and may be done for all rounds together.
_LINEAR = frozenset(("transpose", "reshape", "squeeze", "convert_element_type", "copy", "reduce_sum"))
_CHEAP = _LINEAR | {
    *("broadcast_in_dim", "slice", "split", "concatenate", "rev", "pad", "stop_gradient", "select_n", "not", "and"),
    *("or", "add", "add_any", "sub", "mul", "div", "neg", "max", "min", "abs", "sign", "square", "integer_pow"),
    *("tanh", "logistic", "exp", "log", "sqrt", "rsqrt", "eq", "ne", "lt", "le", "gt", "ge"),
}
_ADDITIONS = ("add", "add_any")
_SHARDINGS = ("sharding", "out_sharding")


@dataclass(frozen=True)
class Term:
    """What each round adds to a sum.

    Attributes:
        source: A variable that is known of all rounds, or what a product makes.
        product: The product, or `None`.
        end: What comes of the source by steps that are all linear.
    """

    source: Any
    product: Any
    end: Any

    @property
    def operands(self) -> list[Any]:
        """What has to be known of all rounds."""
        return [self.source] if self.product is None else list(self.product.invars)


@dataclass(frozen=True)
class Plan:
    """What a loop is spared.

    Attributes:
        turned: Fixed matrices that are transposed before it.
        outputs: The numbers of the stacked outputs that are computed after it.
        sums: The terms of the carried sums that are taken after it, by number.
        saved: Variables that the loop hands out for that.
    """

    turned: list[Any]
    outputs: list[int]
    sums: dict[int, list[Term]]
    saved: list[Any]

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be spared."""
        return not (self.turned or self.outputs or self.sums)


def planned(body: Body) -> Plan:
    """Decides what is done before and after a loop."""
    moved = _moved(body)
    outputs = [i for i, v in enumerate(body.stacked) if not is_number(v) and v in moved]
    saved = list(_needed(body, moved))
    sums: dict[int, list[Term]] = {}
    # Twice: a sum of what other sums have saved costs nothing more.
    for _ in range(2):
        for i in range(len(body.carried)):
            terms = [] if i in sums else _terms(body, i)
            if terms and all(t.product is not None or t.source in saved for t in terms):
                sums[i] = terms
                operands = (v for term in terms for v in term.operands)
                saved += dict.fromkeys(v for v in operands if v not in (*body.rows, *saved))
    if sum(map(nbytes, saved)) * body.length > _MOST_BYTES:
        moved, outputs, sums, saved = set[Any](), [], {}, []
    return Plan(_turned(body, moved), outputs, sums, saved)


def _moved(body: Body) -> set[Any]:
    """What comes of products with fixed matrices and is not needed in the loop."""
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


def _needed(body: Body, moved: set[Any]) -> Iterator[Any]:
    """What the equations that wait need of each round."""
    seen = {*body.rows, *moved}
    for equation in body.equations:
        if not moved.isdisjoint(equation.outvars):
            new = [v for v in variables(equation.invars) if v in body.varying and v not in seen]
            seen.update(new)
            yield from dict.fromkeys(new)


def _turned(body: Body, moved: set[Any]) -> list[Any]:
    """Fixed matrices that all products left in the loop read by their columns."""

    def is_read_by_columns(matrix: Any) -> bool:
        left = [e for e in body.users.get(matrix, ()) if moved.isdisjoint(e.outvars)]
        return bool(left) and all(
            _rows(body, e) in _TURN_ROWS
            and e.invars[1] is matrix
            and tuple(e.params["dimension_numbers"][0][1]) == (1,)
            for e in left
        )

    return [v for v in body.fixed if v.aval.ndim == 2 and is_read_by_columns(v)]


def _terms(body: Body, number: int) -> list[Term]:
    """What each round adds to a carried value, if that is all that happens to it; or nothing."""
    start, end = body.carried[number], body.after[number]
    if is_number(end) or end is start or start.aval.dtype.name not in FLOATS:
        return []
    if body.uses(start) != 1 or body.uses(end) != 1:
        return []
    leaves = list(_summands(body, end))
    terms = [_term(body, leaf) for leaf in leaves if leaf is not start]
    found = [term for term in terms if term is not None]
    return found if len(found) == len(leaves) - 1 else []


def _summands(body: Body, variable: Any) -> Iterator[Any]:
    operands = []
    if variable in body.maker and body.uses(variable) == 1:
        maker = body.maker[variable]
        operands = maker.invars if maker.primitive.name in _ADDITIONS else []
    if not operands or any(is_number(v) or v.aval.shape != variable.aval.shape for v in operands):
        yield variable
        return
    for operand in operands:
        yield from _summands(body, operand)


def _term(body: Body, end: Any) -> Term | None:
    """Follows a term to where it comes from."""
    source = end
    while source in body.maker and body.uses(source) == 1:
        maker = body.maker[source]
        if _is_product(maker):
            (left, _), _ = maker.params["dimension_numbers"]
            few = math.prod(maker.invars[0].aval.shape[i] for i in left) in _LATE_ROWS
            vary = all(v in body.varying for v in maker.invars)
            return Term(source, maker, end) if few and vary else None
        if not _is_linear(maker):
            break
        source = maker.invars[0]
    return Term(source, None, end)


def _is_linear(equation: Any) -> bool:
    if equation.primitive.name not in _LINEAR or not _is_cheap(equation) or is_number(equation.invars[0]):
        return False
    before, after = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    # A sum in a narrower type would be another one.
    return before == after or (before.name in FLOATS and after.name in FLOATS and before.itemsize < after.itemsize)


def _is_cheap(equation: Any) -> bool:
    return equation.primitive.name in _CHEAP and all(equation.params.get(name) is None for name in _SHARDINGS)


def _rows(body: Body, equation: Any) -> int:
    """How many rows a product has with a matrix that stays the same; 0 if it is something else."""
    if not _is_product(equation):
        return 0
    varying = [i for i, v in enumerate(equation.invars) if v in body.varying]
    if len(varying) != 1:
        return 0
    contracted = equation.params["dimension_numbers"][0][varying[0]]
    shape = equation.invars[varying[0]].aval.shape
    return math.prod(size for i, size in enumerate(shape) if i not in contracted)


def _is_product(equation: Any) -> bool:
    """Whether it is a product of matrices of floating-point numbers."""
    if equation.primitive is not lax.dot_general_p or any(map(is_number, equation.invars)):
        return False
    left, right = (v.aval for v in equation.invars)
    (contracted, _), (batched, _) = equation.params["dimension_numbers"]
    is_float = left.dtype == right.dtype and left.dtype.name in FLOATS
    return is_float and bool(contracted) and not batched and is_free(left, equation.params.get("out_sharding"))
