"""Integer division by 0 in map functions: JAX and numpy give a number for it; here it is an error, as in TensorFlow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lockstep._engine.step.jaxprs import LOOPS, called_jaxpr, close_jaxpr
from lockstep._types import Element, Jaxpr
from lockstep.errors import ArgumentError

# jax.numpy's functions, whose second argument divides: JAX records a call by this name. Of JAX's own primitives only
# those count that a function calls itself: in libraries they divide by what they do not use, as in `gcd`.
_FUNCTIONS = frozenset({"floor_divide", "remainder", "fmod", "divmod"})
_PRIMITIVES = frozenset({"div", "rem"})


def division_error() -> ArgumentError:
    """Returns the error of an integer that is divided by 0."""
    return ArgumentError("Integer division by zero. Leave such elements out with filter, or replace the 0 first")


def may_divide_by_zero(record: Jaxpr, known: Sequence[Any] = (), is_outermost: bool = True) -> bool:
    """Returns whether a closed jaxpr divides integers by anything but constants other than 0.

    `known` are the values of its arguments, `None` for those that are not known. If `is_outermost`, no other calls it.
    """
    jaxpr = record.jaxpr
    values = dict(zip(jaxpr.constvars, record.consts, strict=True))
    values.update(zip(jaxpr.invars, known or [None] * len(jaxpr.invars), strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values.get(atom)

    for step in jaxpr.eqns:
        divisor = _divisor(step, is_outermost)
        if divisor is not None:
            if value(divisor) is None or not np.all(np.asarray(value(divisor))):
                return True
        # Constants are followed into calls: x // 2 inside of a jitted function cannot fail.
        elif any(may_divide_by_zero(inner, list(map(value, operands)), False) for inner, operands in _inner(step)):
            return True
    return False


def divides_by_zero(record: Jaxpr, arguments: Sequence[Any], is_outermost: bool = True) -> Any:
    """Computes bool (), whether a closed jaxpr divides an integer by 0; a part of a traced function."""

    def may_divide(step: Any) -> bool:
        return any(may_divide_by_zero(inner, is_outermost=False) for inner, _ in _inner(step))

    steps = [s for s in record.jaxpr.eqns if _divisor(s, is_outermost) is not None or may_divide(s)]
    atoms = [[d] if (d := _divisor(s, is_outermost)) is not None else list(s.invars) for s in steps]
    flat = [atom for group in atoms for atom in group]
    jaxpr = record.jaxpr.replace(outvars=flat, debug_info=record.jaxpr.debug_info.with_unknown_names())
    # With the divisors as its only outputs: XLA removes all else, so the check costs little.
    values = iter(core.jaxpr_as_fun(close_jaxpr(jaxpr, record.consts))(*arguments))
    any_zero: Any = jnp.zeros((), bool)
    for step, group in zip(steps, atoms, strict=True):
        operands = [next(values) for _ in group]
        if _divisor(step, is_outermost) is not None:
            any_zero |= jnp.any(operands[0] == 0)
        elif step.primitive.name != "cond":
            any_zero |= divides_by_zero(_inner(step)[0][0], operands, is_outermost=False)
        else:
            # Only the branch that runs counts: the other one may divide by the 0 that the condition guards against.
            branches = [lambda *a, b=branch: divides_by_zero(b, a, False) for branch in step.params["branches"]]
            any_zero |= jax.lax.switch(operands[0], branches, *operands[1:])
    return any_zero


def _divisor(step: Any, is_outermost: bool) -> Any:
    """Returns the value by which a step divides integers, or `None`."""
    is_function = step.params.get("name") in _FUNCTIONS
    if not is_function and not (is_outermost and step.primitive.name in _PRIMITIVES):
        return None
    # Floating-point division by 0 is inf or nan, in TensorFlow too.
    return step.invars[1] if len(step.invars) == 2 and step.invars[1].aval.dtype.kind in "iu" else None


def _inner(step: Any) -> list[tuple[Any, Any]]:
    """Returns the closed jaxprs that an equation calls, each with its operands; none of a loop."""
    if step.primitive.name in LOOPS:
        return []
    if step.primitive.name == "cond":
        return [(branch, step.invars[1:]) for branch in step.params["branches"]]
    called = called_jaxpr(step)
    if called is None:
        return []
    return [(called if hasattr(called, "consts") else close_jaxpr(called, ()), step.invars)]


class raise_on_zero_division(np.errstate):
    """A context manager in which numpy raises an error where an integer is divided by 0.

    numpy tells of a division by 0 by the name of the function alone. Only `floor_divide` and `divmod` give no hint of
    the type; then it counts whether the element that is computed with has integers.

    Attributes:
        element: The element that is computed with; several may follow each other in one context.
    """

    def __init__(self, element: Element = None) -> None:
        self.element = element
        self._is_silent = np.geterr()["divide"] == "ignore"
        super().__init__(divide="log", call=self)

    def write(self, message: str) -> None:
        """Raises the error, or gives numpy's own warning."""
        name = message.split()[-1]
        if name in ("remainder", "fmod") or (name in ("floor_divide", "divmod") and _has_integers(self.element)):
            raise division_error()
        if not self._is_silent:
            warnings.warn(message.removeprefix("Warning: ").strip(), RuntimeWarning, stacklevel=2)


def _has_integers(element: Element) -> bool:
    return any(getattr(leaf, "dtype", np.dtype(object)).kind in "iu" for leaf in jax.tree.leaves(element))
