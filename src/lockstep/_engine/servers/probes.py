"""Probes of an optimizer's update: which elements it lets depend on each other, and what it does without a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import lax

from lockstep._engine.servers.layout import dtype_of
from lockstep._engine.servers.rule import Form, Movement
from lockstep._engine.servers.tracing import Split, Trace, split
from lockstep._types import Array

# A spoiled element reaches whatever depends on it: NaN through arithmetic, the large number through comparisons.
_SPOILED = (np.nan, 1e4, -1e4)
_WARM_STEPS = 24
# Adam's first moment is 2^-24 of its largest update after 180 steps; with beta_1=0.99 after 1,900.
_QUIET_STEPS = 4096
# A decay is measured over at most so many powers of ten, far from numbers that are flushed to zero.
_MEASURED = 1e-12
# Where a schedule's rate is looked at: it may be zero at a training's begin, and at its end.
_SAMPLED_STEPS = (0, 1, *(n * 10**i for i in range(1, 7) for n in (1, 2, 5)))
# Rates that a callback may set in place of one that is constant.
_SAMPLED_RATES = (0.1, 0.05, 0.02, 0.005, 0.001)


def is_row_wise(trace: Trace) -> bool:
    """Returns whether no row of a trace's results depends on another row, or on where the row stands."""
    return split(trace) is not None and _is_independent(trace, trace.shape[:1])


def element_form(trace_of: Callable[[Sequence[int]], Trace], rank: int) -> Form:
    """Returns "flat" if no element depends on another one, else "whole".

    Args:
        trace_of: Returns the update of a variable of the shape that it is given.
        rank: Of the variable.
    """
    shape = (4, 3, 2, 2, 2, 2)[:rank] if rank else (4,)
    shape = shape + (2,) * (rank - len(shape))
    trace = trace_of(shape)
    has_own_shapes = all(s.shape == shape for s in trace.slots)
    return "flat" if has_own_shapes and split(trace) is not None and _is_independent(trace, shape) else "whole"


def _is_independent(trace: Trace, axes: Sequence[int]) -> bool:
    """Returns whether positions along the first axes are independent of each other, and all treated alike."""
    if any((s.shape or ())[: len(axes)] != tuple(axes) for s in trace.slots):
        return False
    apply = jax.jit(trace.apply)
    step, arrays = _warm(trace)
    count = len(trace.scalars)
    plain = [np.asarray(r) for r in apply(*step, *arrays)]
    flat = [r.reshape(-1, *r.shape[len(axes) :]) for r in plain[count:]]
    positions = math.prod(axes)
    order = np.roll(np.arange(positions), 1)
    turned = apply(*step, *(_positions(a, axes)[order].reshape(a.shape) for a in arrays))
    if not all(
        np.array_equal(_positions(np.asarray(r), axes), f[order]) for r, f in zip(turned[count:], flat, strict=True)
    ):
        return False
    others = np.arange(positions) != 1
    for which in range(len(arrays)):
        for value in _SPOILED:
            spoiled = [np.array(a) for a in arrays]
            _positions(spoiled[which], axes)[1] = value
            results = [np.asarray(r) for r in apply(*step, *spoiled)]
            if not all(np.array_equal(a, b) for a, b in zip(results[:count], plain[:count], strict=True)):
                return False
            after = [_positions(r, axes)[others] for r in results[count:]]
            if not all(np.array_equal(a, f[others]) for a, f in zip(after, flat, strict=True)):
                return False
    return True


def _positions(array: Array, axes: Sequence[int]) -> Array:
    return array.reshape(math.prod(axes), *array.shape[len(axes) :])


def _warm(trace: Trace, iteration: int | None = None) -> tuple[list[Array], list[Array]]:
    """Returns arguments as they are in the middle of training: scalars of the step, then value, slots, gradient.

    Args:
        trace: Of the update.
        iteration: Which step all of them are; by default one after the other.
    """
    random = np.random.default_rng(7)
    apply = jax.jit(trace.apply)
    dtype = dtype_of(trace.dtype)
    count = len(trace.scalars)
    scalars: list[Array] = [np.asarray(s.initial, dtype_of(s.dtype)) for s in trace.scalars]
    arrays: list[Array] = [random.normal(size=trace.shape).astype(dtype)]
    arrays += [np.full(s.shape or (), s.initial, dtype_of(s.dtype)) for s in trace.slots]
    hyper = [np.asarray(0.01, a.dtype) for a in trace.arguments()[1 : 1 + trace.hyper]]
    for i in range(_WARM_STEPS):
        gradient = random.normal(size=trace.shape).astype(dtype)
        step = np.int32(i if iteration is None else iteration)
        results = [np.asarray(r) for r in apply(step, *hyper, *scalars, *arrays, gradient)]
        scalars, arrays = results[:count], results[count:]
    gradient = random.normal(size=trace.shape).astype(dtype)
    return [np.int32(_WARM_STEPS if iteration is None else iteration), *hyper, *scalars], [*arrays, gradient]


def movement_of(trace: Trace, parts: Split) -> Movement | None:
    """Returns how rows without gradient move, or `None` if they do not.

    Args:
        trace: Of the update of one row.
        parts: The same, divided.
    """
    # How long a row moves must not depend on where a schedule's rate comes to zero: it stays what it is in one step.
    iteration = None if trace.hyper else _liveliest_step(trace)
    step, (value, *slots, _) = _warm(trace, iteration)
    new = [np.full_like(a, s.initial) for a, s in zip(slots, trace.slots, strict=True)]
    warm = _quiet_steps(trace, parts, step, [value, *slots])
    first = [np.int32(iteration or 0), *step[1 : 1 + trace.hyper], *_initial(trace)]
    fresh = _quiet_steps(trace, parts, first, [value, *new])
    if all(_stays(a) for a in warm) and all(_stays(a) for a in fresh):
        return None
    rests = all(_stays(a) for a in fresh)
    # From zero, the end of the way of a value is as exact as its largest step, whatever the value was.
    from_zero = _quiet_steps(trace, parts, step, [np.zeros_like(value), *slots])
    settles = _last_change(from_zero[0])
    # A new row may take some steps to its rest, too: Ftrl sets it to zero in the first.
    rests_after = [_last_change(a) for a in fresh]
    # With a period, how long a row moves depends on where in it the gradient came.
    if trace.is_periodic or settles is None or None in rests_after:
        return Movement(rests, None, ())
    settles = max(settles, *(n or 0 for n in rests_after))
    decays = [_decay(a[settles:]) for a in from_zero[1:]]
    measured = tuple(d for d in decays if d is not None)
    if len(measured) < len(slots):
        return Movement(rests, None, ())
    # Ftrl computes a row from its slots and the rate: it moves again whenever the rate does.
    follows_rate = _moves_with_rate(trace, [a[settles] for a in from_zero])
    rests = rests and not _moves_with_rate(trace, [a[0] for a in fresh])
    return Movement(rests, settles, measured, follows_rate)


def _liveliest_step(trace: Trace) -> int:
    """Returns the step, of some over a long training, whose rate moves a new row most."""
    dtype = dtype_of(trace.dtype)
    slots = [np.full(s.shape or (), s.initial, dtype_of(s.dtype)) for s in trace.slots]
    zeros, gradient = np.zeros(trace.shape, dtype), np.ones(trace.shape, dtype)
    apply = jax.jit(trace.apply)
    count = len(trace.scalars)

    def way(iteration: int) -> float:
        moved = np.abs(np.asarray(apply(np.int32(iteration), *_initial(trace), zeros, *slots, gradient)[count])).max()
        return float(moved) if np.isfinite(moved) else 0.0

    return max(_SAMPLED_STEPS, key=way)


def _moves_with_rate(trace: Trace, arrays: Sequence[Array]) -> bool:
    """Returns whether the value of a row that rests at one rate moves at another."""
    apply = jax.jit(trace.apply)
    count = len(trace.scalars)
    dtypes = [a.dtype for a in trace.arguments()[1 : 1 + trace.hyper]]
    others = [[np.int32(0), *(np.asarray(rate, d) for d in dtypes)] for rate in _SAMPLED_RATES]
    steps = others if trace.hyper else [[np.int32(i)] for i in _SAMPLED_STEPS]
    gradient = np.zeros_like(arrays[0])
    values = (apply(*step, *_initial(trace), *arrays, gradient)[count] for step in steps)
    return any(not np.array_equal(np.asarray(value), arrays[0]) for value in values)


def _initial(trace: Trace) -> list[Array]:
    return [np.asarray(s.initial, dtype_of(s.dtype)) for s in trace.scalars]


def _quiet_steps(trace: Trace, parts: Split, step: Sequence[Array], arrays: Sequence[Array]) -> list[Array]:
    """Returns value and slots after each of some thousand steps without gradient, the first ones included."""
    rates = len(parts.rates)
    hyper = step[1 : 1 + trace.hyper]

    def advance(carry: tuple[Array, ...], i: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        count = len(trace.scalars)
        scalars, now = carry[:count], carry[count:]
        clock = parts.clock(step[0] + i if trace.hyper else step[0], *hyper, *scalars)
        new = parts.update(*clock[:rates], *now, jax.numpy.zeros_like(now[0]))
        return (*clock[rates:], *new), new

    @jax.jit
    def run(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        return lax.scan(advance, carry, jax.numpy.arange(_QUIET_STEPS, dtype=np.int32))[1]

    rows = run(tuple(jax.numpy.asarray(a) for a in (*step[1 + trace.hyper :], *arrays)))
    return [np.concatenate([np.asarray(a)[None], np.asarray(r)]) for a, r in zip(arrays, rows, strict=True)]


def _stays(way: Array) -> bool:
    return bool((way == way[0]).all())


def _last_change(way: Array) -> int | None:
    """Returns after how many steps an array stays as it is; `None` if it moves until late."""
    changes = np.flatnonzero((way[1:] != way[:-1]).reshape(len(way) - 1, -1).any(axis=1))
    last = int(changes[-1]) + 1 if changes.size else 0
    return last if last < _QUIET_STEPS // 2 else None


def _decay(way: Array) -> float | None:
    """Returns the factor by which an array shrinks in each step; `None` if it does anything else."""
    flat = way.reshape(len(way), -1).astype(np.float64)
    if _stays(flat):
        return 1.0
    largest = np.abs(flat).max(axis=0)
    column = flat[:, int(largest.argmax())]
    # What has reached zero has its factor from the steps before, if there are any; else it stays zero.
    length = int(np.flatnonzero(np.abs(column) > _MEASURED * abs(column[0]))[-1]) if column[0] else 0
    length -= length % 2
    if length < 2:
        return 0.0 if not np.abs(flat[2:]).any() else None
    factor = float((column[length] / column[0]) ** (1 / length)) if column[length] / column[0] > 0 else math.nan
    middle = column[0] * factor ** (length // 2)
    is_even = np.isclose(column[length // 2], middle, rtol=1e-4) and np.isclose(
        column[1], column[0] * factor, rtol=1e-5
    )
    return factor if is_even and 0 < factor < 1 else None
