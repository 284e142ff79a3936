"""Sparse tensors as inputs of models of Keras, which compute with dense arrays of the same numbers."""

from __future__ import annotations

from typing import Any

from lockstep._nest import map_structure
from lockstep._types import PyTree
from lockstep.compat.tensorflow import _composite


def to_dense(data: PyTree) -> Any:
    """Returns inputs, or a dataset of them, with a dense tensor in place of each `SparseTensor`."""
    # Empty until a program makes a sparse or ragged tensor: calls of models are many.
    if not _composite.handlers or data is None:
        return data
    from lockstep.compat.tensorflow._sparse_ops import to_dense as dense
    from lockstep.compat.tensorflow._sparse_tensor import SparseTensor, SparseTensorSpec

    def change(tree: PyTree) -> Any:
        return map_structure(lambda leaf: dense(leaf) if isinstance(leaf, SparseTensor) else leaf, tree)

    if hasattr(data, "element_spec") and hasattr(data, "map"):
        found: list[Any] = []
        map_structure(found.append, data.element_spec)
        if not any(isinstance(spec, SparseTensorSpec) for spec in found):
            return data

        def change_element(*element: Any) -> Any:
            parts = list(element)
            return change(tuple(parts) if len(parts) > 1 else parts[0])

        return data.map(change_element)
    is_structure = isinstance(data, (SparseTensor, dict, list, tuple))
    return change(data) if is_structure else data
