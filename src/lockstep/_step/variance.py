"""Which results of a replica's computation may differ between the replicas.

The flow of data through its jaxpr tells: what is computed from inputs that are equal on all replicas is equal; the
number of the replica is not; sums and the like over all replicas are equal again, whatever goes into them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.extend.core as jex
from jax.ad_checkpoint import checkpoint_name

from lockstep._comm import target
from lockstep._xla.loop_body import scan_counts

Tree = TypeVar("Tree")

# The names under which `marked_equal`, `marked_own` and `noted` appear in a jaxpr.
_EQUAL = "lockstep: equal on all replicas"
_EACH = "lockstep: each replica's own"
_NOTED = "lockstep: does this vary, "
_EQUALISING = frozenset(
    ("psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant", "all_gather_reduced")
)
# What answers differently whatever it is asked.
_OWN = frozenset(("axis_index", "io_callback", "infeed", "rng_uniform"))
# What does more with a jaxpr than to call it once.
_WITH_A_PLAN = frozenset(("scan", "while", "cond", "shard_map", "custom_partitioning", "pallas_call", "run_state"))
# They change arrays in place, which the flow of data does not show.
_MUTATING = frozenset(("swap", "addupdate", "masked_swap", "run_state"))


def marked_equal(values: Tree) -> Tree:
    """Says of arrays that they are equal on all replicas, where their computation does not show it."""
    return jax.tree.map(lambda v: checkpoint_name(v, _EQUAL), values)


def marked_own(value: Any) -> Any:
    """Says of an array that it counts as each replica's own, also where all compute the same."""
    return checkpoint_name(value, _EACH)


def noted(value: Any, key: str) -> Any:
    """Asks of an array whether it varies; `varying` notes it under `key`."""
    return checkpoint_name(value, _NOTED + key)


def varying(closed: Any, inputs: Sequence[bool], axis: str, notes: dict[str, bool] | None = None) -> list[bool]:
    """Returns which outputs may differ between replicas.

    Args:
        closed: A `ClosedJaxpr` of what each replica computes, traced with `axis` in its environment.
        inputs: Which of its inputs may differ.
        axis: The mesh axis along which the replicas are.
        notes: Gets for each key of `noted` whether an array varies that was noted under it.
    """
    notes = {} if notes is None else notes
    jaxpr = opened(closed)
    if any(eqn.primitive.name in _MUTATING for eqn in equations(jaxpr)):
        return [any(inputs) or mentions(jaxpr, axis)] * len(jaxpr.outvars)
    return _Flow(axis, notes).through(jaxpr, list(inputs))


def subjaxprs(eqn: Any) -> Iterator[Any]:
    """Yields the jaxprs that an equation has as parameters."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if is_jaxpr(item):
                yield opened(item)


def is_jaxpr(value: Any) -> bool:
    """Whether this is a jaxpr, closed or not; newer releases of jax have one kind only."""
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
    """Whether an equation communicates over `axis`, or asks for the place along it."""
    return axis in axes_of(eqn)


def mentions(jaxpr: Any, axis: str) -> bool:
    """Whether anything in a jaxpr is about `axis`."""
    return any(is_over(eqn, axis) for eqn in equations(jaxpr))


def called(eqn: Any) -> Any:
    """Returns the jaxpr that an equation does nothing but call; `None` for all other equations."""
    if eqn.primitive.name in _WITH_A_PLAN:
        return None
    found = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr")))
    if not is_jaxpr(found) or len(opened(found).invars) != len(eqn.invars):
        return None
    return found if len(opened(found).outvars) == len(eqn.outvars) else None


class _Flow:
    """Follows what varies through jaxprs."""

    def __init__(self, axis: str, notes: dict[str, bool]) -> None:
        self._axis = axis
        self._notes = notes

    def through(self, jaxpr: Any, inputs: list[bool]) -> list[bool]:
        varies: dict[Any, bool] = dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> bool:
            return not isinstance(atom, jex.Literal) and varies.get(atom, False)

        for eqn in jaxpr.eqns:
            varies.update(zip(eqn.outvars, self._after(eqn, [read(v) for v in eqn.invars]), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _after(self, eqn: Any, inputs: list[bool]) -> list[bool]:
        name = eqn.primitive.name
        if name in ("scan", "while", "cond"):
            return {"scan": self._scan, "while": self._while, "cond": self._cond}[name](eqn, inputs)
        closed = called(eqn)
        if closed is not None:
            return self.through(opened(closed), inputs)
        return [self._varies(eqn, inputs)] * len(eqn.outvars)

    def _varies(self, eqn: Any, inputs: list[bool]) -> bool:
        name, params = eqn.primitive.name, eqn.params
        if name == "name" and params["name"] in (_EQUAL, _EACH):
            return params["name"] == _EACH
        if name == "name" and params["name"].startswith(_NOTED):
            key = params["name"].removeprefix(_NOTED)
            self._notes[key] = self._notes.get(key, False) or any(inputs)
        if name == "ffi_call" and params.get("target_name") == target.NAME:
            return False
        if is_over(eqn, self._axis):
            makes_equal = name in _EQUALISING and params.get("axis_index_groups") is None
            return not makes_equal or any(axis is None for axis in axes_of(eqn))
        inside = any(mentions(sub, self._axis) for sub in subjaxprs(eqn))
        return any(inputs) or name in _OWN or inside

    def _scan(self, eqn: Any, inputs: list[bool]) -> list[bool]:
        fixed, count = scan_counts(eqn.params, len(inputs))
        consts, carry, rows = inputs[:fixed], inputs[fixed:][:count], inputs[fixed + count :]
        while True:
            after = self.through(opened(eqn.params["jaxpr"]), [*consts, *carry, *rows])
            grown = _either(carry, after[:count])
            if grown == carry:
                return [*carry, *after[count:]]
            carry = grown

    def _while(self, eqn: Any, inputs: list[bool]) -> list[bool]:
        of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        condition, body = opened(eqn.params["cond_jaxpr"]), opened(eqn.params["body_jaxpr"])
        asked, fixed = inputs[:of_condition], inputs[of_condition:][:of_body]
        carry = inputs[of_condition + of_body :]
        while True:
            differs = any(self.through(condition, [*asked, *carry]))
            grown = _either(carry, [v or differs for v in self.through(body, [*fixed, *carry])])
            if grown == carry:
                return carry
            carry = grown

    def _cond(self, eqn: Any, inputs: list[bool]) -> list[bool]:
        found = [False] * len(eqn.outvars)
        for branch in eqn.params["branches"]:
            found = _either(found, self.through(opened(branch), inputs[1:]))
        return [v or inputs[0] for v in found]


def _either(one: Sequence[bool], other: Sequence[bool]) -> list[bool]:
    return [a or b for a, b in zip(one, other, strict=True)]
