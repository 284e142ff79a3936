"""tf.map_fn over ragged and sparse tensors, and to ragged ones: row by row on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lockstep._nest import map_structure
from lockstep._types import PyTree
from lockstep.compat.tensorflow._composite import handlers
from lockstep.compat.tensorflow._tensor import as_host, constant_array
from lockstep.errors import ArgumentError


def is_ragged_spec(signature: Any) -> bool:
    """Returns whether results are to be rows of a ragged tensor."""
    # By name: the class is imported by programs that have ragged tensors alone.
    return type(signature).__name__ == "RaggedTensorSpec"


def map_rows(fn: Callable[[Any], Any], elems: PyTree, signature: Any) -> Any:
    """Calls a function with each row, and stacks its results: ragged ones, and those of a ragged signature, as rows.

    Raises:
        ArgumentError: If there are no rows, of which no result could be told.
    """
    rows = map_structure(_rows_of, elems)
    counts = {len(part) for part in jax.tree.leaves(rows, is_leaf=lambda node: isinstance(node, list))}
    count = max(counts)
    if len(counts) != 1 or not count:
        raise ArgumentError(f"tf.map_fn takes tensors of equally many rows, at least one. Received: {sorted(counts)}.")
    pick = [
        map_structure(lambda part, row=row: part[row], rows, is_leaf=lambda node: isinstance(node, list))
        for row in range(count)
    ]
    results = [fn(one) for one in pick]
    return map_structure(lambda *parts: _stack(list(parts), signature), *results)


def _rows_of(leaf: Any) -> list[Any]:
    if type(leaf).__name__ == "SparseTensor":
        from lockstep.compat.tensorflow import sparse

        count = int(np.asarray(leaf.dense_shape)[0])
        parts = sparse.split(sp_input=leaf, num_split=count, axis=0)
        return [sparse.reshape(part, np.asarray(leaf.dense_shape)[1:]) for part in parts]
    if type(leaf) in handlers:
        return list(leaf)
    return [as_host(row) for row in constant_array(leaf)]


def _stack(parts: list[Any], signature: Any) -> Any:
    from lockstep.compat.tensorflow._ragged_ops import stack_ragged

    if is_ragged_spec(signature) or type(parts[0]).__name__ == "RaggedTensor":
        return stack_ragged(parts)
    from lockstep.compat.tensorflow._ops.arrays import stack
    from lockstep.compat.tensorflow._ops.create import cast

    result = stack(parts)
    wanted = getattr(signature, "dtype", signature)
    return result if wanted is None or isinstance(wanted, (dict, list, tuple)) else cast(result, wanted)
