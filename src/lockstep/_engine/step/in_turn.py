"""What replicas do together, done by each device for all of them: for shares of a batch that differ in size.

Devices that run one program have arrays of one shape. Where the shares differ, each replica's function is traced for
its own share, and one program goes through all of these records together: where they meet in a collective, its result
is computed from what each of them brings. Nothing is communicated, so nobody waits, not even for an empty share.
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

from lockstep._engine.step import jaxprs
from lockstep._engine.step.jaxprs import bind
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.variance import varying_between
from lockstep.errors import ArgumentError, UnsupportedError

Step = Callable[[Any, Any], tuple[Any, Any]]
_tracing = threading.local()


@dataclass
class Turn:
    """One replica's function while it is traced for its own share.

    Attributes:
        number: Of the replica.
        count: How many replicas there are.
        rows: How many rows each replica has; empty if that is not known.
        known: For each gathering of arrays, in their order: the length of each replica's array, as far as known.
        met: The lengths of this replica's.
    """

    number: int
    count: int
    rows: Sequence[int] = ()
    known: Sequence[Sequence[int]] = ()
    met: list[int] = field(default_factory=list[int])

    def lengths(self, own: int) -> Sequence[int] | None:
        """Returns the length of each replica's array in the next gathering; `None` if they seem to be equal."""
        self.met.append(own)
        place = len(self.met) - 1
        return self.known[place] if place < len(self.known) else None

    @property
    def weight(self) -> float:
        """How much this replica's mean counts: its part of the rows, times the number of replicas."""
        return self.rows[self.number] * self.count / sum(self.rows) if sum(self.rows) else 1.0

    def weighted(self, mean: Any) -> Any:
        """Returns a mean over this replica's rows such that the replicas' mean of it is that over all rows."""
        if not self.weight:  # The mean over no rows is not a number.
            return jnp.zeros_like(mean)
        return mean if self.weight == 1 else mean * jnp.asarray(self.weight, mean.dtype)


def current() -> Turn | None:
    """Returns the turn that is being traced on this thread, or `None`."""
    return getattr(_tracing, "turn", None)


def whole(step: Step, replicas: Replicas, demand_equal: Callable[[Any, Any], None]) -> Step:
    """Makes of a replica's step one of a whole batch, which all replicas can compute without each other.

    Args:
        step: Pure function `(state, share) -> (outputs, state)` of one replica, with collectives over `AXIS`.
        replicas: How many shares there are.
        demand_equal: Raises an error unless the results are the same on all replicas; called with whether each array of
            the step's results may differ between them, and with their shapes and dtypes.

    Returns:
        `(state, batch) -> (outputs, state)`, with the first replica's results. The batch is divided as distributed
        datasets divide it: shares of equal size, the last ones smaller or empty.
    """

    def all_shares(state: Any, batch: Any) -> tuple[Any, Any]:
        rows = next((leaf.shape[0] for leaf in jax.tree.leaves(batch) if leaf.ndim), 0)
        cuts = cuts_of(rows, replicas.count)
        shares = [(state, jax.tree.map(lambda a: a[cut] if a.ndim else a, batch)) for cut in cuts]  # noqa: B023
        records, structure = recorded(step, shares, [c.stop - c.start for c in cuts])
        own = [False] * len(jax.tree.leaves(state)) + [bool(leaf.ndim) for leaf in jax.tree.leaves(batch)]
        differs = jax.tree.unflatten(structure, varying_between(records, own, AXIS))
        demand_equal(differs, jax.tree.unflatten(structure, records[0].out_avals))
        found = evaluated(records, [jax.tree.leaves(share) for share in shares])
        return jax.tree.unflatten(structure, found[0])

    return all_shares


def cuts_of(count: int, parts: int) -> list[slice]:
    """Divides so many rows into shares of equal size, the last ones smaller or empty."""
    each = -(-count // parts)
    return [slice(min(i * each, count), min((i + 1) * each, count)) for i in range(parts)]


def together(function: Callable[..., Any], shares: Sequence[tuple[Any, ...]], rows: Sequence[int] = ()) -> list[Any]:
    """Evaluates a replica's function for all replicas.

    Args:
        function: Of one replica, with collectives over `AXIS`.
        shares: The arguments of each replica: structures of arrays.
        rows: How many rows of a batch each has, if that is known.

    Returns:
        What each replica returns.

    Raises:
        UnsupportedError: For collectives inside of loops or conditions, and for those that have no meaning here.
        ArgumentError: If replicas meet in different collectives, or with arrays that do not fit.
    """
    records, structure = recorded(function, shares, rows)
    found = evaluated(records, [jax.tree.leaves(share) for share in shares])
    return [jax.tree.unflatten(structure, leaves) for leaves in found]


def evaluated(records: Sequence[Any], arguments: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Evaluates the replicas' closed jaxprs together, each for its arguments; returns the results of each."""
    runs = [
        _run(_numbered(jaxprs.opened(jaxpr), i), list(getattr(jaxpr, "consts", ())), values)
        for i, (jaxpr, values) in enumerate(zip(records, arguments, strict=True))
    ]
    return _in_lockstep(runs)


def recorded(
    function: Callable[..., Any], shares: Sequence[tuple[Any, ...]], rows: Sequence[int]
) -> tuple[list[Any], Any]:
    """Returns the closed jaxpr of each replica's function for its own share, and the structure of what it returns."""
    known: list[list[int]] = []
    while True:
        turns = [Turn(i, len(shares), rows, known) for i in range(len(shares))]
        found = [record(function, share, turn) for share, turn in zip(shares, turns, strict=True)]
        demand_one_structure([structure for _, structure in found])
        if len({len(t.met) for t in turns}) > 1:
            raise _out_of_step([f"{len(t.met)} times all_gather" for t in turns])
        met = [list(lengths) for lengths in zip(*(t.met for t in turns), strict=True)]
        if met == known or all(len(set(lengths)) == 1 for lengths in met):
            return [jaxpr for jaxpr, _ in found], found[0][1]
        known = met


def demand_one_structure(structures: Sequence[Any]) -> None:
    """Raises `ArgumentError` unless all replicas have returned the same structure."""
    if any(structure != structures[0] for structure in structures):
        found = " and ".join(map(str, dict.fromkeys(structures)))
        raise ArgumentError(
            f"All replicas must return the same structure. Received: {found}. Return the same for shares of any size."
        )


def record(function: Callable[..., Any], share: tuple[Any, ...], turn: Turn) -> tuple[Any, Any]:
    """Returns the closed jaxpr of a replica's function for its share, and the structure of what it returns."""
    with _taking(turn):
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=_is_weak(a)), share)
        # A function of its own: jax keeps what it has traced, and the turns differ.
        own = lambda *arguments: function(*arguments)  # noqa: E731
        traced = jax.make_jaxpr(own, axis_env=[(AXIS, turn.count)], return_shape=True)
        jaxpr, shape = traced(*shapes)
    return jaxpr, jax.tree.structure(shape)


def _is_weak(array: Any) -> bool:
    return bool(getattr(array, "weak_type", False))


@contextlib.contextmanager
def _taking(turn: Turn) -> Generator[None]:
    before = current()
    _tracing.turn = turn
    try:
        yield
    finally:
        _tracing.turn = before


def _numbered(jaxpr: Any, number: int) -> Any:
    """Puts the replica's number where a jaxpr asks for it, also inside of loops."""

    def renewed(eqn: Any) -> Any:
        if eqn.primitive.name == "axis_index" and jaxprs.is_over(eqn, AXIS):
            literal = jex.Literal(np.int32(number), eqn.outvars[0].aval)
            return eqn.replace(primitive=primitives.copy_p, invars=[literal], params={})
        params = {name: _of_param(value, number) for name, value in eqn.params.items()}
        return eqn.replace(params=params) if any(params[n] is not v for n, v in eqn.params.items()) else eqn

    if not any(e.primitive.name == "axis_index" for e in jaxprs.equations(jaxpr)):
        return jaxpr
    return jaxpr.replace(eqns=[renewed(e) for e in jaxpr.eqns])


def _of_param(value: Any, number: int) -> Any:
    if isinstance(value, tuple):
        parts: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return tuple(_of_param(v, number) for v in parts) if any(map(jaxprs.is_jaxpr, parts)) else value
    if not jaxprs.is_jaxpr(value):
        return value
    inside = jaxprs.opened(value)
    found = _numbered(inside, number)
    if found is inside:
        return value
    return value.replace(jaxpr=found) if value is not inside else found


@dataclass(frozen=True)
class _Meeting:
    """A collective that a replica has come to, and what it brings."""

    eqn: Any
    values: list[Any]


_Run = Generator[_Meeting, list[Any], list[Any]]


def _run(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> _Run:
    """Evaluates a jaxpr, stopping at collectives; it is sent their results."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else values[atom]

    for eqn in jaxpr.eqns:
        found = yield from _step(eqn, [read(v) for v in eqn.invars])
        values.update(zip(eqn.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _step(eqn: Any, values: list[Any]) -> _Run:
    if jaxprs.is_over(eqn, AXIS):
        return (yield _Meeting(eqn, values))
    if any(jaxprs.mentions(sub, AXIS) for sub in jaxprs.subjaxprs(eqn)):
        closed = jaxprs.called(eqn)
        if closed is None:
            raise UnsupportedError(
                "Where replicas have shares of different sizes, what they exchange must not be inside of a loop or a "
                f"condition. Received: a collective in {eqn.primitive.name}. Take it out of there, or batch the data "
                "with drop_remainder=True."
            )
        return (yield from _run(jaxprs.opened(closed), getattr(closed, "consts", ()), values))
    with eqn.ctx.manager:
        return list(bind(eqn.primitive, values, eqn.params))


def _in_lockstep(runs: Sequence[_Run]) -> list[list[Any]]:
    """Runs all, from one meeting to the next."""
    answers: list[Any] = [None] * len(runs)
    while True:
        ended: list[list[Any]] = []
        meetings: list[_Meeting] = []
        for run, answer in zip(runs, answers, strict=True):
            try:
                meetings.append(run.send(answer))
            except StopIteration as end:
                ended.append(end.value)
        if len(ended) == len(runs):
            return ended
        names = [m.eqn.primitive.name for m in meetings] + ["nothing more"] * len(ended)
        if len(set(names)) > 1:
            raise _out_of_step(names)
        answers = _met(meetings)


def _out_of_step(names: Sequence[str]) -> ArgumentError:
    return ArgumentError(
        "All replicas must come to the same collectives in the same order. Received: "
        f"{'; '.join(f'replica {i}: {name}' for i, name in enumerate(names))}. Look for a condition that depends on "
        "the size of a share."
    )


def _met(meetings: Sequence[_Meeting]) -> list[list[Any]]:
    """The results of a collective, for each replica."""
    eqn = meetings[0].eqn
    rule = _RULES.get(eqn.primitive.name)
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
                f"{eqn.primitive.name}. Reduce over the rows first, or use all_gather."
            )
    results = [rule(eqn, column) for column in columns]
    return [[result[i] for result in results] for i in range(len(meetings))]


_Column = Sequence[Any]


def _alike(combine: Callable[[Any, Any], Any]) -> Callable[[Any, _Column], _Column]:
    return lambda eqn, column: [functools.reduce(combine, column)] * len(column)


def _gathered(eqn: Any, column: _Column) -> _Column:
    join = jnp.concatenate if eqn.params["tiled"] else jnp.stack
    return [join(column, axis=eqn.params["all_gather_dimension"])] * len(column)


def _permuted(eqn: Any, column: _Column) -> _Column:
    found = [jnp.zeros_like(v) for v in column]
    for source, to in eqn.params["perm"]:
        found[to] = column[source]
    return found


def _scattered(eqn: Any, column: _Column) -> _Column:
    total, axis = functools.reduce(operator.add, column), eqn.params["scatter_dimension"]
    parts = jnp.split(total, len(column), axis)
    return parts if eqn.params["tiled"] else [lax.squeeze(p, (axis,)) for p in parts]


_RULES: dict[str, Callable[[Any, _Column], _Column]] = {
    "psum": _alike(operator.add),
    "psum_invariant": _alike(operator.add),
    "pmax": _alike(jnp.maximum),
    "pmin": _alike(jnp.minimum),
    "all_gather": _gathered,
    "all_gather_invariant": _gathered,
    "ppermute": _permuted,
    "reduce_scatter": _scattered,
}
