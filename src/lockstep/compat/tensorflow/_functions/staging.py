"""Conditions and loops of compiled code, whose branches and bodies may read and assign variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._types import Array, Variable
from lockstep.compat.tensorflow._functions.refusals import NotCompilableError
from lockstep.compat.tensorflow._functions.scopes import Piece, assign, current_values

_Function = Callable[..., list[Any]]


def cond(predicate: Array, pieces: Sequence[Piece], plan: Sequence[Sequence[int | None]]) -> list[Array]:
    """Computes one of two pieces that take nothing.

    Args:
        predicate: Chooses the first one if it is true.
        pieces: The two.
        plan: Of each result, its number among those of the first piece and of the second; `None` stands for zeros.

    Raises:
        NotCompilableError: If their results differ in shape.
    """
    variables, changed = _union(p.variables for p in pieces), _union(p.changed for p in pieces)
    columns = [[p.shapes[i] for p, i in zip(pieces, numbers, strict=True) if i is not None] for numbers in plan]
    likes = [jax.ShapeDtypeStruct(column[0].shape, _common(column)) for column in columns]

    def branch(side: int) -> Callable[[Any], Any]:
        chosen = [numbers[side] for numbers in plan]

        def compute(values: Sequence[Any]) -> Any:
            found, after = pieces[side]((), _by_id(variables, values))
            results = [
                jnp.zeros(like.shape, like.dtype) if i is None else lax.convert_element_type(found[i], like.dtype)
                for i, like in zip(chosen, likes, strict=True)
            ]
            return results, [after[id(v)] for v in changed]

        return compute

    chosen = jnp.asarray(predicate).astype(bool).reshape(())
    results, values = lax.cond(chosen, branch(0), branch(1), current_values(variables))
    assign(changed, values)
    return results


def while_loop(test: _Function, body: _Function, first: Sequence[Any], maximum_iterations: Any = None) -> list[Array]:
    """Computes `body` again and again as long as `test` is true; both are given what body has returned last.

    Raises:
        NotCompilableError: If shapes change from turn to turn, or the test assigns variables.
    """
    carry, piece = _stable_carry(body, first, ())
    question = Piece(test, [_shape(c) for c in carry])
    if question.changed:
        raise NotCompilableError(f"the condition of a loop assigns {question.changed[0].path}")
    variables, changed = _union([piece.variables, question.variables]), piece.changed
    fixed = _by_id(variables, current_values(variables))

    limit = None if maximum_iterations is None else jnp.asarray(maximum_iterations)

    def goes_on(state: Any) -> Any:
        (found,), _ = question(state[0], {**fixed, **_by_id(changed, state[1])})
        found = jnp.asarray(found).astype(bool).reshape(())
        return found if limit is None else jnp.logical_and(found, state[2] < limit)

    def turn(state: Any) -> Any:
        results, after = piece(state[0], {**fixed, **_by_id(changed, state[1])})
        return _cast(results, carry), [after[id(v)] for v in changed], state[2] + 1

    begin = carry, [fixed[id(v)] for v in changed], jnp.zeros((), jnp.int32)
    results, values, _ = lax.while_loop(goes_on, turn, begin)
    assign(changed, values)
    return results


def for_loop(elements: Any, test: _Function | None, body: _Function, first: Sequence[Any]) -> list[Array]:
    """Computes `body` for each slice of arrays along their first dimension, of which the number is known.

    Derivatives can be taken of it, as of no `while_loop`.

    Args:
        elements: A list of arrays.
        test: Of what body has returned last; where it is false, the rest of the slices changes nothing.
        body: Of what it has returned last, and the slices.
        first: What the first turn is given.
    """
    slices = [jax.ShapeDtypeStruct(e.shape[1:], e.dtype) for e in elements]
    carry, piece = _stable_carry(body, first, slices)
    question = None if test is None else Piece(test, [_shape(c) for c in carry])
    asked = [] if question is None else question.variables
    variables, changed = _union([piece.variables, asked]), piece.changed
    fixed = _by_id(variables, current_values(variables))

    def turn(state: Any, now: Any) -> Any:
        def compute(state: Any) -> Any:
            results, after = piece([*state[0], *now], {**fixed, **_by_id(changed, state[1])})
            return _cast(results, carry), [after[id(v)] for v in changed]

        if question is None:
            return compute(state), None
        (goes_on,), _ = question(state[0], {**fixed, **_by_id(changed, state[1])})
        return lax.cond(jnp.asarray(goes_on).astype(bool).reshape(()), compute, lambda state: state, state), None

    (results, values), _ = lax.scan(turn, (carry, [fixed[id(v)] for v in changed]), list(elements))
    assign(changed, values)
    return results


def _stable_carry(body: _Function, first: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Array], Piece]:
    """Returns what a loop begins with, in the types that its body returns, and the body."""
    carry = [jnp.asarray(value) for value in first]
    for _ in range(3):
        piece = Piece(body, [*map(_shape, carry), *slices])
        for value, shape in zip(carry, piece.shapes, strict=True):
            if value.shape != shape.shape:
                raise NotCompilableError(
                    f"a value of a loop begins with the shape {value.shape}, and a turn makes it {shape.shape}"
                )
        # A number of Python's, such as `total = 0`, takes the type of what is added to it.
        types = [_common([v.aval, s]) for v, s in zip(carry, piece.shapes, strict=True)]
        if all(value.dtype == dtype for value, dtype in zip(carry, types, strict=True)):
            return [lax.convert_element_type(v, v.dtype) for v in carry], piece
        carry = [lax.convert_element_type(v, d) for v, d in zip(carry, types, strict=True)]
    raise NotCompilableError("a value of a loop has another type after each turn")


def _shape(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _common(shapes: Sequence[Any]) -> Any:
    """Returns the type for results of several branches or turns; those of Python's numbers follow the others."""
    if len({s.shape for s in shapes}) > 1:
        raise NotCompilableError(f"the branches of a condition give shapes that differ: {[s.shape for s in shapes]}")
    return jnp.result_type(*(_NUMBERS[s.dtype.kind] if _is_weak(s) else s.dtype for s in shapes))


# A number of Python's follows the type of what it meets.
_NUMBERS = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}


def _is_weak(shape: Any) -> bool:
    return bool(getattr(shape, "weak_type", False)) and shape.dtype.kind in _NUMBERS


def _cast(results: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    return [lax.convert_element_type(r, c.dtype) for r, c in zip(results, like, strict=True)]


def _union(lists: Any) -> list[Variable]:
    return list({id(v): v for found in lists for v in found}.values())


def _by_id(variables: Sequence[Variable], values: Sequence[Any]) -> dict[int, Any]:
    return {id(v): value for v, value in zip(variables, values, strict=True)}
