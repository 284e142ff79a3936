"""Signatures of generators, in the forms that TensorFlow accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax

from lockstep._nest import canonical
from lockstep._types import PyTree
from lockstep.data._spec import TensorSpec
from lockstep.errors import ArgumentError


def signature_of(types: PyTree, shapes: PyTree, signature: PyTree) -> Any:
    """Returns the signature that `output_types` and `output_shapes` stand for."""
    if types is None or signature is not None:
        raise ArgumentError(
            "from_generator takes output_types, and output_shapes with them, or output_signature. Received: both, or "
            "output_shapes alone. Give output_signature alone."
        )
    if shapes is None:
        return jax.tree.map(lambda t: TensorSpec(None, t), canonical(types))
    leaves, structure = jax.tree.flatten(canonical(types))
    # A shape is a list, and None an unknown one: neither is a container here.
    flat = jax.tree.leaves(canonical(shapes), is_leaf=lambda s: s is None or _is_shape(s))
    if len(flat) != len(leaves):
        raise ArgumentError(f"output_shapes must have a shape for each dtype of {types}. Received: {shapes}.")
    return structure.unflatten([TensorSpec(s, t) for s, t in zip(flat, leaves, strict=True)])


def _is_shape(value: PyTree) -> bool:
    if isinstance(value, (list, tuple)):
        sizes = cast("Sequence[Any]", value)
        return all(s is None or isinstance(s, int) for s in sizes)
    return hasattr(value, "as_list")


def as_signature(signature: PyTree) -> Any:
    """Specs of any library, as long as they have shape and dtype."""
    return signature and jax.tree.map(lambda s: TensorSpec(s.shape, s.dtype), canonical(signature))
