"""Gradients that travel as two thin factors: PowerSGD.

A gradient of n x m numbers is, on average over the replicas, about the product of an n x r and an m x r matrix. One
round of power iteration finds such factors without anybody seeing the whole: each replica multiplies its matrix by a
start m x r, the products are added up and made orthonormal, its transpose is multiplied by that, and those products are
added up. So r (n + m) numbers travel in place of n m. The second factor is the start of the next step, which thereby
follows the gradients' main directions from step to step.

Each replica keeps what the factors do not say of its gradient, and adds it to its next one ("error feedback"): what was
applied, and what all replicas keep, add up to the true gradients.

All that is decided here follows from sums, which are the same bits everywhere; so are the results.

Source: Vogels, Karimireddy and Jaggi 2019, "PowerSGD: practical low-rank gradient compression for distributed
optimization". There the matrices are given by the layers; here a gradient of any number of axes is cut where the
factors are smallest, so that no layout of a library needs to be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.step.reduction import Reduction

# Factors pay where they have at most so many of the bytes.
_GAIN = 2
# What is left of a column beside those before it, if they say all of it: rounding.
_ROUNDING = 1e-6


def gains(value: jax.Array, rank: int) -> bool:
    """Returns whether factors of `rank` columns take at most half of the bytes of a value."""
    if not jnp.issubdtype(value.dtype, jnp.floating) or value.ndim < 2 or not value.size:
        return False
    factors = rank * sum(_sides(value.shape)) * factor_dtype(value).itemsize
    return _GAIN * factors <= value.size * value.dtype.itemsize


def factor_dtype(value: jax.Array) -> jnp.dtype:
    """Returns the type of the factors and residuals: at least float32."""
    # bfloat16 has 8 binary digits: what an orthonormal basis needs, and what a residual adds, would be rounded away.
    return jnp.promote_types(value.dtype, jnp.float32)


def factor_shape(value: jax.Array, rank: int) -> tuple[int, int]:
    """Returns the shape of the factor that the next step starts from."""
    return _sides(value.shape)[1], rank


def _sides(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the matrix, cut between those axes where they are fewest together."""
    cuts = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(cuts, key=sum)


def sum_factored(
    reduction: Reduction,
    values: Sequence[jax.Array],
    residuals: Sequence[jax.Array],
    factors: Sequence[jax.Array],
    axis: str,
    replicas: int,
) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
    """Returns about the sum of each value over `axis`, the same bits on all replicas; new residuals; new factors."""
    wanted = [value.astype(kept.dtype) + kept for value, kept in zip(values, residuals, strict=True)]
    matrices = [value.reshape(_sides(value.shape)) for value in wanted]
    starts = _apply_stacked(_start_columns, factors)
    lefts = reduction.sum([m @ start for m, start in zip(matrices, starts, strict=True)], axis, replicas)
    lefts = orthonormal(lefts)
    rights = reduction.sum([m.T @ left for m, left in zip(matrices, lefts, strict=True)], axis, replicas)
    sums = [
        (left @ right.T).reshape(value.shape).astype(value.dtype)
        for left, right, value in zip(lefts, rights, values, strict=True)
    ]
    # Each replica takes off the mean, and not its own part of it, which nobody computes: together they keep just what
    # the sum lacks.
    after = [whole - total.astype(whole.dtype) / replicas for whole, total in zip(wanted, sums, strict=True)]
    # What has overflowed on any replica makes a whole factor so. No such step counts, and nothing is kept of it.
    is_finite = jnp.stack([jnp.isfinite(right).all() for right in rights]).all()
    after = [jnp.where(is_finite & jnp.isfinite(new), new, old) for new, old in zip(after, residuals, strict=True)]
    return sums, after, [jnp.where(is_finite, new, old) for new, old in zip(rights, factors, strict=True)]


def orthonormal(matrices: Sequence[jax.Array]) -> list[jax.Array]:
    """Makes the columns of each matrix orthogonal and of length 1, from the first on.

    Those that the ones before them say already become zeros. All matrices must have as many columns.
    """
    return _apply_stacked(_orthonormal, matrices)


def _apply_stacked(function: Callable[[jax.Array], jax.Array], matrices: Sequence[jax.Array]) -> list[jax.Array]:
    """Applies a function of stacked matrices.

    Those of about the same number of rows are filled up with zeros and computed together: a model may have a hundred,
    which would take a minute to compile.
    """
    groups: dict[tuple[int, jnp.dtype], list[int]] = {}
    for i, matrix in enumerate(matrices):
        groups.setdefault((_round_up(len(matrix)), matrix.dtype), []).append(i)
    found: dict[int, jax.Array] = {}
    for (rows, _), places in groups.items():
        filled = [jnp.pad(matrices[i], ((0, rows - len(matrices[i])), (0, 0))) for i in places]
        computed = function(jnp.stack(filled))
        found.update({i: computed[k, : len(matrices[i])] for k, i in enumerate(places)})
    return [found[i] for i in range(len(matrices))]


def _round_up(rows: int) -> int:
    """Returns the next power of four."""
    # A hundred shapes make a handful of groups; a matrix is filled up to at most four times its rows.
    return 4 ** math.ceil(math.log(max(rows, 4), 4) - 1e-9)


def _start_columns(factors: jax.Array) -> jax.Array:
    """Returns the columns of factors with length 1; columns of zeros are drawn."""
    is_there = jnp.abs(factors).max(axis=-2, keepdims=True) > 0
    return _unit(jnp.where(is_there, factors, _draw(factors)))


def _draw(like: jax.Array) -> jax.Array:
    """Numbers from -1 to 1 without order, which compile quickly: bits of the place, mixed."""
    row, column = (lax.broadcasted_iota(jnp.uint32, like.shape, axis) for axis in (1, 2))
    mixed = (row + 1) * jnp.uint32(0x9E3779B1) + (column + 1) * jnp.uint32(0x85EBCA77)
    for shift, times in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(times)
    # 24 bits, all of which float32 holds.
    return (mixed >> 8).astype(like.dtype) / (1 << 23) - 1


def _orthonormal(columns: jax.Array) -> jax.Array:
    """Each is taken out of the next ones twice (Gram-Schmidt).

    So float32 does for columns that are nearly parallel, too. Source: Giraud et al. 2005, "Rounding error analysis of
    the classical Gram-Schmidt orthogonalization process".
    """
    columns = _unit(columns)

    def one(number: jax.Array, basis: jax.Array) -> jax.Array:
        rest = _reject(basis, lax.dynamic_slice_in_dim(columns, number, 1, axis=2))
        left = _length(rest)
        found = _reject(basis, rest / left)
        found = jnp.where(left <= _ROUNDING, 0, found / _length(found))
        return lax.dynamic_update_slice_in_dim(basis, found, number, axis=2)

    return lax.fori_loop(0, columns.shape[2], one, jnp.zeros_like(columns))


def _reject(basis: jax.Array, column: jax.Array) -> jax.Array:
    """Returns the part of a column that is orthogonal to an orthonormal basis."""
    # In plain sums: products of matrices may round more.
    along = jnp.sum(basis * column, axis=-2, keepdims=True)
    return column - jnp.sum(basis * along, axis=-1, keepdims=True)


def _unit(columns: jax.Array) -> jax.Array:
    """Columns of length 1, whatever their size; zeros stay."""
    largest = jnp.abs(columns).max(axis=-2, keepdims=True)
    scaled = columns / jnp.where(largest == 0, 1, largest)
    return scaled / jnp.where(largest == 0, 1, _length(scaled))


def _length(columns: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(columns * columns, axis=-2, keepdims=True))
