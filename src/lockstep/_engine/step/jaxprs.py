"""Walks jaxprs: equations, the jaxprs inside of them, and the mesh axes that they communicate over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.extend.core as jex

# What does more with a jaxpr than to call it once.
_WITH_A_PLAN = frozenset(("scan", "while", "cond", "shard_map", "custom_partitioning", "pallas_call", "run_state"))


def subjaxprs(eqn: Any) -> Iterator[Any]:
    """Yields the jaxprs that an equation has as parameters."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if is_jaxpr(item):
                yield opened(item)


def is_jaxpr(value: Any) -> bool:
    """Returns whether this is a jaxpr, closed or not; newer releases of jax have one kind only."""
    return isinstance(value, (jex.ClosedJaxpr, jex.Jaxpr))


def opened(jaxpr: Any) -> Any:
    """Returns the jaxpr without its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yields all equations, also those inside of others."""
    for eqn in jaxpr.eqns:
        yield eqn
        for sub in subjaxprs(eqn):
            yield from equations(sub)


def axes_of(eqn: Any) -> tuple[Any, ...]:
    """Returns the mesh axes that an equation communicates over, or asks for."""
    named = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return tuple(named) if isinstance(named, (tuple, list)) else (named,)


def is_over(eqn: Any, axis: str) -> bool:
    """Returns whether an equation communicates over `axis`, or asks for the place along it."""
    return axis in axes_of(eqn)


def mentions(jaxpr: Any, axis: str) -> bool:
    """Returns whether anything in a jaxpr is about `axis`."""
    return any(is_over(eqn, axis) for eqn in equations(jaxpr))


def called(eqn: Any) -> Any:
    """Returns the jaxpr that an equation does nothing but call; `None` for all other equations."""
    if eqn.primitive.name in _WITH_A_PLAN:
        return None
    found = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr")))
    if not is_jaxpr(found) or len(opened(found).invars) != len(eqn.invars):
        return None
    return found if len(opened(found).outvars) == len(eqn.outvars) else None


def bind(primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Applies a primitive, given the parameters of an equation; returns all its results."""
    found = primitive.bind(*values, **primitive.get_bind_params(params))
    return list(found) if primitive.multiple_results else [found]


def scan_counts(params: Mapping[str, Any], inputs: int) -> tuple[int, int]:
    """Returns how many of the inputs of a `scan` stay the same, and how many are carried.

    Raises:
        LookupError: If this release of jax does not tell.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    try:  # Newer releases keep a tree instead.
        fixed, carried, _ = params["ft_in"].update(range(inputs)).unpack()
        return len(list(fixed)), len(list(carried))
    except (KeyError, AttributeError, TypeError, ValueError):
        raise LookupError("this release of jax describes scan in a way that is not known here") from None
