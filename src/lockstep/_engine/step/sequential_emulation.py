"""Sequential emulation of replicas: every device computes the steps of all, for shards of a batch that differ in size.

Devices that run one program have arrays of one shape. Where shards differ, each replica's function is traced for its
own shard, and one program goes through all of these jaxprs together: where they meet in a collective, its result is
computed from what each of them brings. Nothing is communicated, so nobody waits, not even for an empty shard.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from lockstep._engine.step.jaxprs import (
    Equation,
    called_jaxpr,
    equations,
    evaluate_equation,
    evaluate_stepwise,
    is_over,
    mentions,
    replace_equations,
    replace_subjaxprs,
    subjaxprs,
)
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.replica_invariance import find_varying
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.shapes import difference
from lockstep._types import Array, Batch, Jaxpr, PyTree, PyTreeDef, State
from lockstep.errors import ArgumentError, UnsupportedError

_tracing = threading.local()


@dataclass
class Turn:
    """One replica's function while it is traced for its own shard.

    Attributes:
        number: Of the replica.
        count: How many replicas there are.
        rows: How many rows each replica has; empty if that is not known.
        known: For each all-gather, in their order: the length of each replica's array, as far as known.
        met: The lengths of this replica's.
    """

    number: int
    count: int
    rows: Sequence[int] = ()
    known: Sequence[Sequence[int]] = ()
    met: list[int] = field(default_factory=list[int])

    def lengths(self, own: int) -> Sequence[int] | None:
        """Returns the length of each replica's array in the next all-gather; `None` if they seem to be equal."""
        self.met.append(own)
        index = len(self.met) - 1
        return self.known[index] if index < len(self.known) else None

    @property
    def weight(self) -> float:
        """How much this replica's mean counts: its part of the rows, times the number of replicas."""
        return self.rows[self.number] * self.count / sum(self.rows) if sum(self.rows) else 1.0

    def weight_mean(self, mean: Array) -> Array:
        """Returns a mean over this replica's rows such that the replicas' mean of it is that over all rows."""
        if not self.weight:  # The mean over no rows is not a number.
            return jnp.zeros_like(mean)
        return mean if self.weight == 1 else mean * jnp.asarray(self.weight, mean.dtype)


def current() -> Turn | None:
    """Returns the turn that is being traced on this thread, or `None`."""
    return getattr(_tracing, "turn", None)


def emulate_step(step: Step, replicas: Replicas, check_equal: Callable[[PyTree, PyTree], None]) -> Step:
    """Returns a step of a whole batch, made of a replica's, which all devices compute without each other.

    Args:
        step: Pure function `(state, shard) -> (outputs, state)` of one replica, with collectives over `AXIS`.
        replicas: How many shards there are.
        check_equal: Raises an error unless the results are the same on all replicas; called with whether each array of
            the step's results may differ between them, and with their shapes and dtypes.

    Returns:
        `(state, batch) -> (outputs, state)`, with the first replica's results. The batch is divided as distributed
        datasets divide it: shards of equal size, the last ones smaller or empty.
    """

    def whole_step(state: State, batch: Batch) -> tuple[PyTree, State]:
        rows = next((leaf.shape[0] for leaf in jax.tree.leaves(batch) if leaf.ndim), 0)
        slices = shard_slices(rows, replicas.count)
        shards = [(state, jax.tree.map(lambda a: a[cut] if a.ndim else a, batch)) for cut in slices]  # noqa: B023
        jaxprs, structure = trace_replicas(step, shards, [cut.stop - cut.start for cut in slices])
        own = [False] * len(jax.tree.leaves(state)) + [bool(leaf.ndim) for leaf in jax.tree.leaves(batch)]
        varies = jax.tree.unflatten(structure, find_varying(jaxprs, own, AXIS))
        check_equal(varies, jax.tree.unflatten(structure, jaxprs[0].out_avals))
        return jax.tree.unflatten(structure, evaluate(jaxprs, [jax.tree.leaves(shard) for shard in shards])[0])

    return whole_step


def shard_slices(count: int, shards: int) -> list[slice]:
    """Returns the rows of each shard: shards of equal size, the last ones smaller or empty."""
    each = -(-count // shards)
    return [slice(min(i * each, count), min((i + 1) * each, count)) for i in range(shards)]


def trace_replicas(
    function: Callable[..., PyTree], shards: Sequence[tuple[Any, ...]], rows: Sequence[int]
) -> tuple[list[Jaxpr], PyTreeDef]:
    """Returns the closed jaxpr of each replica's function for its own shard, and the structure of what it returns."""
    known: list[list[int]] = []
    # How long the arrays are that an all-gather joins shows only when all have been traced: then all are traced again,
    # until nothing new comes up.
    while True:
        turns = [Turn(i, len(shards), rows, known) for i in range(len(shards))]
        traced = [trace_replica(function, shard, turn) for shard, turn in zip(shards, turns, strict=True)]
        check_one_structure([structure for _, structure in traced])
        if len({len(t.met) for t in turns}) > 1:
            raise _out_of_step([f"{len(t.met)} times all_gather" for t in turns])
        met = [list(lengths) for lengths in zip(*(t.met for t in turns), strict=True)]
        if met == known or all(len(set(lengths)) == 1 for lengths in met):
            return [jaxpr for jaxpr, _ in traced], traced[0][1]
        known = met


def check_one_structure(structures: Sequence[PyTreeDef]) -> None:
    """Raises `ArgumentError` unless all replicas have returned the same structure."""
    if any(structure != structures[0] for structure in structures):
        raise ArgumentError(
            "All replicas must return the same structure. Received: "
            f"{' and '.join(map(str, dict.fromkeys(structures)))}. Return the same for shares of any size."
        )


def trace_replica(function: Callable[..., PyTree], shard: tuple[Any, ...], turn: Turn) -> tuple[Jaxpr, PyTreeDef]:
    """Returns the closed jaxpr of a replica's function for its shard, and the structure of what it returns."""

    def to_shape(a: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=bool(getattr(a, "weak_type", False)))

    with _taking(turn):
        # A function of its own: jax keeps what it has traced, and the turns differ.
        own = lambda *arguments: function(*arguments)  # noqa: E731
        trace = jax.make_jaxpr(own, axis_env=[(AXIS, turn.count)], return_shape=True)
        jaxpr, shape = trace(*jax.tree.map(to_shape, shard))
    return jaxpr, jax.tree.structure(shape)


@contextlib.contextmanager
def _taking(turn: Turn) -> Generator[None]:
    before = current()
    _tracing.turn = turn
    try:
        yield
    finally:
        _tracing.turn = before


def _fill_replica_number(jaxpr: Jaxpr, number: int) -> Jaxpr:
    """Puts the replica's number where a jaxpr asks for it, also inside of loops."""

    def fill(eqn: Equation) -> Equation:
        if eqn.primitive.name == "axis_index" and is_over(eqn, AXIS):
            literal = jex.Literal(np.int32(number), eqn.outvars[0].aval)
            return eqn.replace(primitive=primitives.copy_p, invars=[literal], params={})
        return replace_subjaxprs(eqn, lambda inside: _fill_replica_number(inside, number))

    # Most functions ask for none, and then nothing is rebuilt.
    asks = any(eqn.primitive.name == "axis_index" for eqn in equations(jaxpr))
    return replace_equations(jaxpr, fill) if asks else jaxpr


@dataclass(frozen=True)
class _Meeting:
    """A collective that a replica has come to, and what it brings."""

    eqn: Equation
    values: list[Array]


_Run = Generator[_Meeting, list[Array], list[Array]]


def _run(jaxpr: Jaxpr, arguments: Sequence[Array]) -> _Run:
    """Evaluates a jaxpr, stopping at collectives; it is sent their results."""
    steps = evaluate_stepwise(jaxpr, arguments)
    try:
        eqn, values = next(steps)
        while True:
            eqn, values = steps.send((yield from _run_equation(eqn, values)))
    except StopIteration as end:
        return end.value


def _run_equation(eqn: Equation, values: list[Array]) -> _Run:
    if is_over(eqn, AXIS):
        return (yield _Meeting(eqn, values))
    if not any(mentions(sub, AXIS) for sub in subjaxprs(eqn)):
        return evaluate_equation(eqn, values)
    closed = called_jaxpr(eqn)
    if closed is None:
        raise UnsupportedError(
            "Where replicas have shares of different sizes, what they exchange must not be inside of a loop or a "
            f"condition. Received: a collective in {eqn.primitive.name}. Take it out of there, or batch the data "
            "with drop_remainder=True."
        )
    return (yield from _run(closed, values))


def evaluate(jaxprs: Sequence[Jaxpr], arguments: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Evaluates the replicas' closed jaxprs together, from one collective to the next; returns the results of each.

    Raises:
        UnsupportedError: For collectives inside of loops or conditions, and for those that have no meaning here.
        ArgumentError: If replicas meet in different collectives, or with arrays that do not fit.
    """
    runs = [
        _run(_fill_replica_number(jaxpr, i), values)
        for i, (jaxpr, values) in enumerate(zip(jaxprs, arguments, strict=True))
    ]
    # A generator is begun by sending it `None`.
    answers: list[Any] = [None] * len(runs)
    while True:
        results: list[list[Array]] = []
        meetings: list[_Meeting] = []
        for run, answer in zip(runs, answers, strict=True):
            try:
                meetings.append(run.send(answer))
            except StopIteration as end:
                results.append(end.value)
        if len(results) == len(runs):
            return results
        names = [m.eqn.primitive.name for m in meetings] + ["nothing more"] * len(results)
        if len(set(names)) > 1:
            raise _out_of_step(names)
        answers = _meet(meetings)


def _out_of_step(names: Sequence[str]) -> ArgumentError:
    return ArgumentError(
        "All replicas must come to the same collectives in the same order. Received: "
        f"{'; '.join(f'replica {i}: {name}' for i, name in enumerate(names))}. Look for a condition that depends on "
        "the size of a share."
    )


def _meet(meetings: Sequence[_Meeting]) -> list[list[Array]]:
    """Returns the results of a collective, for each replica."""
    eqn = meetings[0].eqn
    rule = COLLECTIVES.get(eqn.primitive.name)
    if rule is None or eqn.params.get("axis_index_groups") is not None:
        raise UnsupportedError(
            "Where replicas have shares of different sizes, they can exchange sums, maxima, minima and gathered "
            f"arrays of all replicas. Received: {eqn}. Use ReplicaContext.all_reduce or all_gather."
        )
    columns = list(zip(*(m.values for m in meetings), strict=True))
    for column in columns:
        if len({v.shape for v in map(jnp.asarray, column)}) > 1:
            raise ArgumentError(
                f"What replicas reduce must have one shape. Received: {[jnp.shape(v) for v in column]} in "
                f"{eqn.primitive.name}.{difference([jnp.shape(v) for v in column])} Reduce over the rows first, or use "
                "all_gather."
            )
    results = [rule(eqn, column) for column in columns]
    return [[result[i] for result in results] for i in range(len(meetings))]


_Column = Sequence[Array]


def _reduce_by(combine: Callable[[Array, Array], Array]) -> Callable[[Equation, _Column], _Column]:
    # In the order of the replicas, as one device would add up their rows.
    return lambda eqn, column: [functools.reduce(combine, column)] * len(column)


def _all_gather(eqn: Equation, column: _Column) -> _Column:
    join = jnp.concatenate if eqn.params["tiled"] else jnp.stack
    return [join(column, axis=eqn.params["all_gather_dimension"])] * len(column)


def _permute(eqn: Equation, column: _Column) -> _Column:
    # As lax.ppermute: who is sent nothing receives zeros.
    received = [jnp.zeros_like(v) for v in column]
    for source, to in eqn.params["perm"]:
        received[to] = column[source]
    return received


def _reduce_scatter(eqn: Equation, column: _Column) -> _Column:
    total, axis = functools.reduce(operator.add, column), eqn.params["scatter_dimension"]
    parts = jnp.split(total, len(column), axis)
    return parts if eqn.params["tiled"] else [lax.squeeze(p, (axis,)) for p in parts]


COLLECTIVES: dict[str, Callable[[Equation, _Column], _Column]] = {
    "psum": _reduce_by(operator.add),
    "psum_invariant": _reduce_by(operator.add),
    "pmax": _reduce_by(jnp.maximum),
    "pmin": _reduce_by(jnp.minimum),
    "all_gather": _all_gather,
    "all_gather_invariant": _all_gather,
    "ppermute": _permute,
    "reduce_scatter": _reduce_scatter,
}
"""By the name of its primitive, each replica's result of a collective, given what each of them brings."""
