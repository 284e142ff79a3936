"""Buckets of elements by length, for `bucket_by_sequence_length`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._nest import canonical
from lockstep._types import PyTree
from lockstep.data._transforms.batch import shape_leaves
from lockstep.errors import ArgumentError, InputError


def bucket_of(length: Callable[..., Any], boundaries: Sequence[int]) -> Callable[..., Any]:
    """Returns a function from an element to the number of its bucket; `length` returns the element's length."""
    bounds = np.array(boundaries, np.int64)

    @functools.wraps(length)
    def bucket(*values: Any) -> Any:
        size = length(*values)
        # In both cases in one call; 32 bits suffice, as there are that few buckets.
        if isinstance(size, jax.Array):
            return jnp.searchsorted(bounds.astype(np.int32), size, side="right").astype(np.int32)
        return np.int64(np.searchsorted(bounds, np.asarray(size), side="right"))

    return bucket


def upper_size(bucket: int, boundaries: Sequence[int]) -> int:
    """Returns the size that a bucket's elements are padded to, so that they fill it."""
    if bucket >= len(boundaries):
        raise ArgumentError(
            "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries). Received: one of at "
            f"least {boundaries[-1] if boundaries else 0}. Drop longer ones with filter, or add a boundary."
        )
    return boundaries[bucket] - 1


def open_shapes(spec: PyTree, shapes: PyTree, size: int | None) -> Any:
    """Returns the shapes to pad to, as `padded_batch` takes them, with `size` where one is open."""
    if size is None:
        return shapes
    leaves, structure = jax.tree.flatten(canonical(spec))
    given = [leaf.shape for leaf in leaves] if shapes is None else shape_leaves(shapes)
    if any(shape is None for shape in given):
        raise InputError(
            f"pad_to_bucket_boundary needs elements with a known number of axes. Received: {spec}. Give padded_shapes."
        )
    return structure.unflatten([[size if n is None else n for n in shape] for shape in given])
