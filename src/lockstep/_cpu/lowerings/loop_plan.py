"""What a loop can be spared: a plan, made of the body of a `lax.scan` as it is recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax import lax

from lockstep._cpu.lowerings.canonical import FLOATS, is_free
from lockstep._cpu.lowerings.loop_body import Body, is_number, nbytes
from lockstep._engine.step.jaxprs import variables

# Rows of a round with which it is faster: a product that is made later, a matrix that is transposed. More rows make
# good use of the machine by themselves, and one alone is read against columns.
_LATE_ROWS, _TURN_ROWS = range(1, 97), range(2, 49)
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


@dataclass(frozen=True)
class Term:
    """What each round adds to a sum.

    Attributes:
        sources: Variables that are known of all rounds, with `None`; or what products make, each with its product.
        end: What comes of the sources by steps that are all linear.
    """

    sources: dict[Any, Any]
    end: Any

    @property
    def is_product(self) -> bool:
        """Whether products make it."""
        return all(product is not None for product in self.sources.values())

    @property
    def operands(self) -> list[Any]:
        """What has to be known of all rounds."""
        return [v for source, product in self.sources.items() for v in (product.invars if product else [source])]


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
            if terms and all(t.is_product or set(saved).issuperset(t.sources) for t in terms):
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
    sources = dict(_sources(body, end))
    products = [product for product in sources.values() if product is not None]
    all_or_none = len(products) in (0, len(sources))
    return Term(sources, end) if all_or_none and all(_adds_up(body, product) for product in products) else None


def _sources(body: Body, variable: Any) -> Iterator[tuple[Any, Any]]:
    maker = body.maker.get(variable) if body.uses(variable) == 1 else None
    if maker is not None and _is_linear(maker):
        for operand in variables(maker.invars):
            yield from _sources(body, operand)
    else:
        yield variable, maker if maker is not None and _is_product(maker) else None


def _adds_up(body: Body, product: Any) -> bool:
    """Whether one product of all rounds' rows is better than a sum of products."""
    (left, _), _ = product.params["dimension_numbers"]
    rows = math.prod(product.invars[0].aval.shape[i] for i in left)
    return rows in _LATE_ROWS and all(v in body.varying for v in product.invars)


def _is_linear(equation: Any) -> bool:
    """Whether a sum of what it makes is what it makes of sums."""
    if equation.primitive.name == "pad":
        padded, margin = equation.invars
        return not is_number(padded) and is_number(margin) and margin.val == 0
    if equation.primitive.name not in _LINEAR or not _is_cheap(equation) or any(map(is_number, equation.invars)):
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
