"""Sums of a round's shares, in the order of the shares whoever came first; and what a push must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lockstep._engine.servers.dense import Dense
from lockstep._engine.servers.layout import Variable, dtype_of
from lockstep._engine.servers.requests import JobSpec, Push
from lockstep._engine.servers.rows import Table
from lockstep._types import Array
from lockstep.errors import MismatchError


@dataclass(frozen=True)
class Sum:
    """The gradients of a whole ticket: as `Push` has them, weighted."""

    rows: Mapping[str, tuple[Array, Array]]
    dense: Mapping[str, Array]
    delta: Mapping[str, Array]


def sum_of(pushes: Sequence[Push]) -> Sum:
    """Returns the weighted sum of shares, added in the order given; those without rows of the batch count nothing."""
    pushes = [push for push in pushes if push.weight]
    first = pushes[0]
    if len(pushes) == 1 and first.weight == 1.0:
        return Sum(first.rows, first.dense, first.delta)
    tables = dict.fromkeys(name for push in pushes for name in push.rows)
    return Sum(
        {name: _sum_of_rows([(p.rows[name], p.weight) for p in pushes if name in p.rows]) for name in tables},
        {name: _sum_of_arrays([(p.dense[name], p.weight) for p in pushes]) for name in first.dense},
        {name: _sum_of_arrays([(p.delta[name], p.weight) for p in pushes]) for name in first.delta},
    )


def _weigh(array: Array, weight: float) -> Array:
    return array * np.asarray(weight, array.dtype)


def _sum_of_arrays(parts: Sequence[tuple[Array, float]]) -> Array:
    dtype = parts[0][0].dtype
    if dtype.kind in "iu":
        # A weight is no integer: a counter that every share has raised by 1 is raised by 1.
        return np.rint(sum(array.astype(np.float64) * weight for array, weight in parts)).astype(dtype)
    total = _weigh(*parts[0])
    for part in parts[1:]:
        total = total + _weigh(*part)
    return total


def _sum_of_rows(parts: Sequence[tuple[tuple[Array, Array], float]]) -> tuple[Array, Array]:
    ids = np.unique(np.concatenate([own for (own, _), _ in parts]))
    gradients = parts[0][0][1]
    total = np.zeros((ids.size, *gradients.shape[1:]), gradients.dtype)
    for (own, values), weight in parts:
        # Ids of one share are different from each other, so that nothing is lost.
        total[np.searchsorted(ids, own)] += _weigh(values, weight)
    return ids, total


def rows_of_sum(total: Sum, table: Variable, ids: Array) -> Array:
    """Returns the gradients of a table's rows in a sum, in the order of `ids`; zeros where it has none."""
    found = np.zeros((len(ids), *table.row_shape), dtype_of(table.dtype))
    known, gradients = total.rows.get(table.name, (ids[:0], found[:0]))
    if len(known):
        order = np.argsort(known)
        places = order[np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)]
        is_there = known[places] == ids
        found[is_there] = gradients[places[is_there]]
    return found


def check_push(push: Push, spec: JobSpec, dense: Dense, tables: Mapping[str, Table]) -> None:
    """Raises `MismatchError` unless a push has what the layout says, before anything is changed."""
    if not 0 <= push.share < spec.shares or push.ticket < 0:
        _refuse(push, f"share {push.share} of {spec.shares}")
    if not push.weight and not (push.dense or push.delta or push.rows):
        return  # A share without rows of the batch.
    shapes = dense.shapes()
    if push.dense.keys() != shapes.keys():
        _refuse(push, f"gradients of {sorted(set(push.dense) ^ set(shapes))[:4]} too many or too few")
    for name, shape in shapes.items():
        if push.dense[name].shape != shape:
            _refuse(push, f"a gradient of shape {tuple(push.dense[name].shape)} for {name!r}, which has {shape} here")
    for name, difference in push.delta.items():
        if name not in dense.deltas or difference.shape != dense.deltas[name].shape:
            _refuse(push, f"a difference of shape {tuple(difference.shape)} for {name!r}")
    for name, (ids, gradients) in push.rows.items():
        if name not in tables:
            _refuse(push, f"rows of {name!r}, which is no table here")
        if ids.ndim != 1 or tuple(gradients.shape) != (ids.size, *tables[name].variable.row_shape):
            _refuse(push, f"gradients of shape {tuple(gradients.shape)} for {ids.size} rows of {name!r}")
        if not (ids[1:] > ids[:-1]).all() and np.unique(ids).size != ids.size:
            _refuse(push, f"a row of {name!r} twice")
        tables[name].local(ids)


def _refuse(push: Push, what: str) -> None:
    raise MismatchError(
        f"A push has the gradients of one layout. Received: {what}, in ticket {push.ticket}. Start all tasks with "
        "the same program."
    )
