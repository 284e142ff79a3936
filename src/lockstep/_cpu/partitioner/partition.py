"""A step of the whole batch, as a function of one replica's share.

The step is traced for the whole batch. Then every value of its program is found to lie on the replicas in one of three
ways: all of it on each; in blocks along an axis; or as a sum that is still due. Rules say for each primitive how its
result lies, and what it needs. Sums wait for as long as nobody needs them, and are taken together. So the numbers are
those of one device, whatever the step does with the batch: normalise over it, compare its examples, draw one mask.

XLA's partitioner does the same, but its reductions are its own: they cannot be packed, compressed or sent through
shared memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax

from lockstep._cpu.partitioner.flat import flatten
from lockstep._cpu.partitioner.layout import REPLICATED, Layout, NoRule, local_shape, sharded, size_of
from lockstep._cpu.partitioner.plan import Plan, Planner
from lockstep._cpu.partitioner.rows import spread_rows
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import Replicas
from lockstep._types import Array, Batch, Jaxpr, PyTreeDef, State

_log = logging.getLogger(__name__)

# Collecting a divided value costs about what adding up gradients of the same size costs. A few times a batch's own
# bytes is what losses that compare examples need; more would be the wrong way to divide the step.
_GATHERED_BATCHES = 4
_GATHERED_FLOOR = 1 << 20
# Work without a rule is done by every replica as a whole, so there must be little of it.
_REPEATED_BATCHES = 0.25
_REPEATED_FLOOR = 1 << 18


class Partitioned:
    """A step on one replica, to be called inside `jax.shard_map(..., check_vma=False)` over `replicas.AXIS`.

    The state must be replicated, or divided along the axes that were told; data of one or more axes divided along the
    first, data without axes replicated. Outputs come out replicated, and the state as it was.

    Attributes:
        calls: How often `Reduction.sum` is called in a step; bodies of loops count once.
        sums: How many values each of the calls outside of loops adds up.
        gathered: Bytes that a step collects from all replicas otherwise, its outputs aside.
    """

    def __init__(self, plan: Plan, treedef: PyTreeDef) -> None:
        self._plan = plan
        self._treedef = treedef
        self.calls = plan.calls
        self.sums = tuple(len(stage.sums) for stage in plan.stages if stage.sums)
        self.gathered = plan.gathered

    def __call__(self, state: State, data: Batch) -> tuple[Any, Any]:
        """Computes `(outputs, state)` from the state and this replica's share of the data."""
        return jax.tree.unflatten(self._treedef, self._plan.run(jax.tree.leaves((state, data))))


def partition(step: Callable[[Any, Any], Any], state: State, data: Batch, replicas: Replicas) -> Partitioned | None:
    """Returns `step` divided over `replicas`, or `None` if part of it has no sound rule.

    Args:
        step: Pure function `(state, data) -> (outputs, state)` of the whole batch.
        state: What it is called with, as arrays or anything with `shape` and `dtype`.
        data: The same; its arrays have the shape of the whole batch. Their first axes divide by the number of replicas.
        replicas: Where it runs; `replicas.reduction` says how sums are taken.
    """
    whole = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (state, data))
    jaxpr, shapes = jax.make_jaxpr(step, return_shape=True)(*whole)
    return partition_jaxpr(jaxpr, jax.tree.structure(shapes), state, data, replicas)


def partition_jaxpr(
    jaxpr: Jaxpr,
    structure: PyTreeDef,
    state: State,
    data: Batch,
    replicas: Replicas,
    axes: Sequence[int | None] | None = None,
) -> Partitioned | None:
    """Returns a step that has been traced already, divided over `replicas`; see `partition`.

    Args:
        jaxpr: The step as `jax.make_jaxpr` traced it for arguments without a place on devices.
        structure: The `jax.tree.structure` of its results.
        state: As for `partition`.
        data: As for `partition`.
        replicas: As for `partition`.
        axes: Along which axis each array of the state is divided; `None` for one that is replicated, or for all.
    """
    count = replicas.count
    if count < 2:
        return None
    try:
        layouts = [
            REPLICATED if axis is None else sharded(axis) for axis in axes or [None] * len(jax.tree.leaves(state))
        ]
        plan = _plan(jaxpr, layouts, data, Planner(count, replicas.reduction or Reduction()))
    except NoRule as reason:
        _log.debug("The step runs in the global view: %s.", reason)
        return None
    _log.debug("The step is divided over %d replicas; it adds up values %d times.", count, plan.calls)
    return Partitioned(plan, structure)


def _plan(traced: Jaxpr, state: Sequence[Layout], data: Batch, planner: Planner) -> Plan:
    flat = spread_rows(flatten(traced))
    layouts = [*state, *(_data_layout(a, planner.count) for a in jax.tree.leaves(data))]
    plan = planner.plan_program(flat, layouts, [REPLICATED] * (len(flat.outputs) - len(state)) + list(state))
    batch = sum(size_of(a) for a in jax.tree.leaves(data))
    if plan.gathered > max(_GATHERED_BATCHES * batch, _GATHERED_FLOOR):
        raise NoRule(f"{plan.gathered} bytes would be collected, of a batch of {batch}")
    if plan.repeated > max(_REPEATED_BATCHES * batch, _REPEATED_FLOOR):
        raise NoRule(f"work on {plan.repeated} bytes would be repeated, of a batch of {batch}")
    return plan


def _data_layout(array: Array, count: int) -> Layout:
    if not array.shape:
        return REPLICATED
    # For its error: a batch that does not divide is no matter of this step's program.
    local_shape(array.shape, 0, count)
    return sharded(0)
