"""Lookups of embeddings and weights, combined over the categories of an example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._types import Array, DType, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import take_rows
from lockstep.estimator.feature_column._columns import Ids

COMBINERS = ("mean", "sqrtn", "sum")


def check_combiner(name: str, combiner: object) -> None:
    """Checks a combiner."""
    if combiner not in COMBINERS:
        raise ArgumentError(f"{name} must be one of {', '.join(COMBINERS)}. Received: {combiner!r}.")


def combine_rows(table: Array | Variable, ids: Ids, combiner: str, max_norm: float | None = None) -> jax.Array:
    """Looks up the rows of each example's categories and combines them by weight.

    Unknown (negative) categories are ignored; with "mean" and "sqrtn" also those with a weight of at most 0. Without
    any category, the result is 0. A category beyond the table gives NaN.

    `table` is float32 (categories, columns), the result (batch, columns): the sum, with "mean" divided by the sum of
    weights, with "sqrtn" by the root of the sum of their squares. Rows longer than `max_norm` are clipped first.
    """
    weights = jnp.ones(ids.ids.shape, table.dtype) if ids.weights is None else ids.weights
    # tf.nn.safe_embedding_lookup_sparse prunes them so: a mean by negative weights could divide by 0.
    counts = (ids.ids >= 0) if combiner == "sum" else (ids.ids >= 0) & (weights > 0)
    # Padding reads row 0 and is masked below: a negative index would read from the end, also into the gradient.
    rows = take_rows(table, jnp.where(counts, ids.ids, 0), _take)
    if max_norm is not None:
        squares = jnp.sum(rows**2, axis=-1, keepdims=True)
        norms = jnp.sqrt(jnp.where(squares > 0, squares, 1))
        rows = rows * max_norm / jnp.maximum(norms, max_norm)
    weights = jnp.where(counts, weights, 0)
    total = jnp.sum(weights[..., None] * rows, axis=1)
    if combiner == "sum":
        return total
    size = jnp.sum(weights if combiner == "mean" else weights**2, axis=1)
    size = jnp.where(size > 0, size, 1)  # Before the root, whose gradient at 0 is infinite.
    return total / (size if combiner == "mean" else jnp.sqrt(size))[:, None]


def _take(values: Array, ids: Array) -> jax.Array:
    return jnp.take(values, ids, axis=0, mode="fill", fill_value=jnp.nan)


def from_checkpoint(path: str, name: str) -> Callable[..., Any]:
    """Returns an initializer that reads a variable of a checkpoint."""

    def read(shape: Sequence[int], dtype: DType | None = None) -> Any:
        from lockstep import checkpoint

        # A directory has a latest checkpoint; anything else is a checkpoint itself. Read now, not when the column is
        # described: a program may describe columns before another has written the checkpoint.
        prefix = checkpoint.latest_checkpoint(path) or path
        arrays = checkpoint.load(prefix).arrays
        if name not in arrays:
            raise ArgumentError(
                f"tensor_name_in_ckpt must be a variable of the checkpoint {prefix}. Received: {name!r}; there are: "
                f"{', '.join(sorted(arrays))}."
            )
        if arrays[name].shape != tuple(shape):
            raise ArgumentError(
                f"The embeddings in the checkpoint {prefix} must have the column's shape, {tuple(shape)}. Received for "
                f"{name!r}: {arrays[name].shape}."
            )
        return arrays[name]

    return read
