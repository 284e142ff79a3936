"""Which results of a replica's computation may differ between the replicas.

The numbers of values tell (`value_numbering`): what is computed in the same way from inputs that are equal on all
replicas is equal; the number of the replica is not, nor is what depends on the size of a replica's shard; sums and the
like over all replicas are equal again, whatever goes into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
from jax.ad_checkpoint import checkpoint_name

from lockstep._engine.step import backends
from lockstep._engine.step.jaxprs import axes_of, equations, is_over, mentions, opened, subjaxprs
from lockstep._engine.step.value_numbering import Numbering, Table, Value

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
    """Returns which outputs may differ between replicas that all have the same record.

    Args:
        closed: A `ClosedJaxpr` of what each replica computes, traced with `axis` in its environment.
        inputs: Which of its inputs may differ.
        axis: The mesh axis along which the replicas are.
        notes: Gets for each key of `noted` whether an array varies that was noted under it.
    """
    return varying_between([closed, closed], inputs, axis, notes)


def varying_between(
    records: Sequence[Any], inputs: Sequence[bool], axis: str, notes: dict[str, bool] | None = None
) -> list[bool]:
    """Returns which outputs may differ between replicas that have a record each, such as for shards of several sizes.

    Args:
        records: The `ClosedJaxpr` of each replica, with the same number of outputs.
        inputs: Which of their inputs may differ.
        axis: The mesh axis along which the replicas are.
        notes: Gets for each key of `noted` whether an array varies that was noted under it.
    """
    table = Table()
    each = [_Replica(table, i, axis) for i in range(len(records))]
    found = [replica.outputs(record, inputs) for replica, record in zip(each, records, strict=True)]
    if notes is not None:
        notes.update({key: any(r.noted.get(key) != each[0].noted[key] for r in each) for key in each[0].noted})
    return [len(set(numbers)) > 1 for numbers in zip(*found, strict=True)]


class _Replica:
    """Numbers what one replica computes.

    Attributes:
        noted: By key, the numbers of what is noted under it.
    """

    def __init__(self, table: Table, replica: int, axis: str) -> None:
        self._table = table
        self._replica = replica
        self._axis = axis
        self._owns = 0
        self._equals = 0
        self.noted: dict[str, list[int]] = {}

    def outputs(self, closed: Any, inputs: Sequence[bool]) -> list[int]:
        """Returns the numbers of what is returned."""
        given = [self._own() if own else self._table.number("argument", i) for i, own in enumerate(inputs)]
        jaxpr = opened(closed)
        if any(eqn.primitive.name in _MUTATING for eqn in equations(jaxpr)):
            record = self._own() if mentions(jaxpr, self._axis) else self._table.number("object", id(closed))
            return [self._table.number("mutating", record, i, *given) for i in range(len(jaxpr.outvars))]
        return [value.number for value in Numbering(self._table, self).outputs(closed, list(map(Value, given)))]

    def number(self, eqn: Any, inputs: Sequence[Value]) -> int | None:
        """Returns the number of what an equation computes, if its primitive, parameters and inputs do not say it."""
        name, params = eqn.primitive.name, eqn.params
        if name == "name":
            return self._marked(params["name"], inputs[0].number)
        if name == "ffi_call" and backends.is_all_reduce(params.get("target_name")):
            return self._equal()
        if is_over(eqn, self._axis):
            equalises = name in _EQUALISING and params.get("axis_index_groups") is None
            return self._equal() if equalises and None not in axes_of(eqn) else self._own()
        inside = any(mentions(sub, self._axis) for sub in subjaxprs(eqn))
        return self._own() if name in _OWN or inside else None

    def _marked(self, name: str, number: int) -> int | None:
        if name.startswith(_NOTED):
            self.noted.setdefault(name.removeprefix(_NOTED), []).append(number)
        return {_EQUAL: self._equal, _EACH: self._own}[name]() if name in (_EQUAL, _EACH) else None

    def _own(self) -> int:
        """A number that no other replica has."""
        self._owns += 1
        return self._table.number("own", self._replica, self._owns)

    def _equal(self) -> int:
        """A number that all replicas have that have come as far."""
        self._equals += 1
        return self._table.number("equal", self._equals)
