"""Gradients that travel in fewer bytes, and what is kept so that nothing is lost for good.

There are two ways: in a narrower type (`wire`), and as thin factors (`powersgd`). Both have error feedback: each
replica keeps of its gradient what the others were not told, and adds it to its next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.step import powersgd, wire
from lockstep._engine.step.reduction import Reduction


class Kept(NamedTuple):
    """What is kept from one step to the next: arrays, or shapes and types.

    Attributes:
        own: Each replica's. Only the sum over the replicas counts, so that other replicas can share it.
        common: The same on all replicas.
    """

    own: tuple[Any, ...] = ()
    common: tuple[Any, ...] = ()


class _Ways(NamedTuple):
    """Which values travel how, by their places."""

    factored: list[int]
    narrowed: list[int]
    plain: list[int]


def _ways(reduction: Reduction, values: Sequence[jax.Array]) -> _Ways:
    found = _Ways([], [], [])
    for i, value in enumerate(values):
        if reduction.rank and powersgd.gains(value, reduction.rank):
            found.factored.append(i)
        elif reduction.wire is not None and wire.narrows(value):
            found.narrowed.append(i)
        else:
            found.plain.append(i)
    return found


def kept_for(reduction: Reduction, values: Sequence[jax.Array]) -> Kept:
    """Returns shapes and types of what is kept for gradients: of `own` one for each that is compressed, in order.

    `common` holds how many steps there were, as far as that counts, and a factor of each gradient that has them.
    """
    ways = _ways(reduction, values)

    def shaped(i: int) -> jax.ShapeDtypeStruct:
        value = values[i]
        return jax.ShapeDtypeStruct(value.shape, powersgd.computed_in(value) if i in ways.factored else value.dtype)

    own = tuple(shaped(i) for i in sorted((*ways.factored, *ways.narrowed)))
    steps = (jax.ShapeDtypeStruct((), jnp.dtype(jnp.float32)),) if ways.factored and reduction.whole_steps else ()
    factors = [
        jax.ShapeDtypeStruct(powersgd.factor_shape(values[i], reduction.rank), powersgd.computed_in(values[i]))
        for i in ways.factored
    ]
    return Kept(own, (*steps, *factors))


def summed(
    reduction: Reduction, values: Sequence[jax.Array], before: Kept, axis: str, replicas: int
) -> tuple[list[jax.Array], Kept]:
    """Returns the sums of gradients over `axis`, the same bits on all replicas, and what is to be kept.

    Args:
        reduction: How they travel, and are added up.
        values: The gradients. Those that no way makes shorter go as they are.
        before: As `kept_for` says; zeros at first.
        axis: The mesh axis; to be called inside `shard_map` over it.
        replicas: How many members it has.
    """
    ways = _ways(reduction, values)
    own = dict(zip(sorted((*ways.factored, *ways.narrowed)), before.own, strict=True))
    sums = dict(zip(ways.plain, reduction.sum([values[i] for i in ways.plain], axis, replicas), strict=True))
    common = before.common
    if ways.narrowed:
        narrow = [values[i] for i in ways.narrowed], [own[i] for i in ways.narrowed]
        found, after = wire.summed(reduction, *narrow, axis, replicas)
        sums.update(zip(ways.narrowed, found, strict=True))
        own.update(zip(ways.narrowed, after, strict=True))
    if ways.factored:
        wide = [values[i] for i in ways.factored]
        kept = Kept(tuple(own[i] for i in ways.factored), common)
        found, (after, common) = _factored(reduction, wide, kept, axis, replicas)
        sums.update(zip(ways.factored, found, strict=True))
        own.update(zip(ways.factored, after, strict=True))
    return [sums[i] for i in range(len(values))], Kept(tuple(own[i] for i in sorted(own)), common)


def _factored(
    reduction: Reduction, values: Sequence[jax.Array], before: Kept, axis: str, replicas: int
) -> tuple[list[jax.Array], Kept]:
    """Sums by factors, after the steps in which gradients travel whole."""

    def as_factors(values: Sequence[jax.Array], kept: Kept) -> tuple[list[jax.Array], Kept]:
        sums, own, factors = powersgd.summed(reduction, values, *kept, axis, replicas)
        return sums, Kept(tuple(own), tuple(factors))

    if not reduction.whole_steps:
        return as_factors(values, before)
    steps, *factors = before.common
    sums, (own, after) = lax.cond(
        steps < reduction.whole_steps,
        lambda values, kept: (reduction.sum(values, axis, replicas), kept),
        as_factors,
        *(list(values), Kept(before.own, tuple(factors))),
    )
    # It goes no further than it counts: float32 has no larger numbers that are whole.
    return sums, Kept(own, (jnp.minimum(steps + 1, reduction.whole_steps), *after))
