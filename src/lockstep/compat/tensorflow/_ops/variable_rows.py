"""Updates of a variable by rows, and reads of some of its elements: scatter_*, gather_nd and sparse_read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lockstep._types import Tensor
from lockstep.compat.tensorflow._error_kinds import ArgumentTypeError
from lockstep.compat.tensorflow._ops.indexing import (
    gather,
    gather_nd,
    tensor_scatter_nd_add,
    tensor_scatter_nd_max,
    tensor_scatter_nd_min,
    tensor_scatter_nd_sub,
    tensor_scatter_nd_update,
)
from lockstep.compat.tensorflow._ops.named import replica_scope
from lockstep.compat.tensorflow._types import Trackable
from lockstep.distribute import get_replica_context
from lockstep.distribute.internal import UnsupportedValueError, cross_replica

# Changes that have no sum over replicas.
_OF_ONE = {"set": "scatter_update", "min": "scatter_min", "max": "scatter_max"}


class RowUpdates:
    """Methods of a variable that change or read some of its rows.

    `sparse_delta` is tf.IndexedSlices: rows `values`, (n, ...), and `indices`, (n,), of the rows of the variable which
    they change; rows that are named twice are changed twice. In a function of `strategy.run` a variable with
    aggregation SUM or MEAN is changed by the rows of all replicas, with MEAN divided by their number.
    """

    assign: Callable[..., Any]
    assign_add: Callable[..., Any]
    assign_sub: Callable[..., Any]
    read_value: Callable[[], Any]
    aggregation: Any
    synchronization: Any

    def scatter_add(self, sparse_delta: Trackable, use_locking: bool = False, name: str | None = None) -> Any:
        """Adds to rows, and returns the variable; raises TypeError for anything but IndexedSlices."""
        return self.assign_add(self._zeros_with(sparse_delta))

    def scatter_sub(self, sparse_delta: Trackable, use_locking: bool = False, name: str | None = None) -> Any:
        """Subtracts from rows, and returns the variable; raises TypeError for anything but IndexedSlices."""
        return self.assign_sub(self._zeros_with(sparse_delta))

    def scatter_update(self, sparse_delta: Trackable, use_locking: bool = False, name: str | None = None) -> Any:
        """Sets rows, and returns the variable; raises TypeError for anything but IndexedSlices."""
        return self._change_rows(sparse_delta, "set")

    def scatter_min(self, sparse_delta: Trackable, use_locking: bool = False, name: str | None = None) -> Any:
        """Keeps the smaller values in rows, and returns the variable; raises TypeError but for IndexedSlices."""
        return self._change_rows(sparse_delta, "min")

    def scatter_max(self, sparse_delta: Trackable, use_locking: bool = False, name: str | None = None) -> Any:
        """Keeps the larger values in rows, and returns the variable; raises TypeError but for IndexedSlices."""
        return self._change_rows(sparse_delta, "max")

    def scatter_mul(self, sparse_delta: Trackable, use_locking: bool = False, name: str | None = None) -> Any:
        """Multiplies rows, and returns the variable; raises TypeError for anything but IndexedSlices."""
        return self._change_rows(sparse_delta, "multiply")

    def scatter_div(self, sparse_delta: Trackable, use_locking: bool = False, name: str | None = None) -> Any:
        """Divides rows, and returns the variable; raises TypeError for anything but IndexedSlices."""
        return self._change_rows(sparse_delta, "divide")

    def scatter_nd_update(self, indices: Tensor, updates: Tensor, name: str | None = None) -> Any:
        """Sets elements at index vectors."""
        return self.assign(tensor_scatter_nd_update(self, indices, updates))

    def scatter_nd_add(self, indices: Tensor, updates: Tensor, name: str | None = None) -> Any:
        """Adds to elements at index vectors."""
        return self.assign(tensor_scatter_nd_add(self, indices, updates))

    def scatter_nd_sub(self, indices: Tensor, updates: Tensor, name: str | None = None) -> Any:
        """Subtracts from elements at index vectors."""
        return self.assign(tensor_scatter_nd_sub(self, indices, updates))

    def scatter_nd_max(self, indices: Tensor, updates: Tensor, name: str | None = None) -> Any:
        """Takes the larger values at index vectors."""
        return self.assign(tensor_scatter_nd_max(self, indices, updates))

    def scatter_nd_min(self, indices: Tensor, updates: Tensor, name: str | None = None) -> Any:
        """Takes the smaller values at index vectors."""
        return self.assign(tensor_scatter_nd_min(self, indices, updates))

    def gather_nd(self, indices: Tensor, name: str | None = None) -> Any:
        """Returns the elements at index vectors, as `tf.gather_nd`."""
        return gather_nd(self, indices)

    def sparse_read(self, indices: Tensor, name: str | None = None) -> Any:
        """Returns the rows of indices, as `tf.gather`."""
        return gather(self, indices)

    def _change_rows(self, delta: Trackable, how: str) -> Any:
        indices, rows = _parts(delta)
        context = self._context_of_all()
        if context is None:
            return self.assign(self._rows(indices, rows, how))
        if how in _OF_ONE:
            raise UnsupportedValueError(
                f"{_OF_ONE[how]}: a variable whose aggregation is {self.aggregation!r} has one value for all replicas, "
                "whose rows are multiplied, divided, added and subtracted. Received: this change, in a function of "
                "strategy.run. Make the variable with aggregation='only_first_replica'."
            )
        # As in TensorFlow, what all replicas give is combined, and applied to the value once.
        indices, rows = context.all_gather(indices, 0), context.all_gather(rows, 0)
        if self.aggregation == "mean":
            rows = rows / context.num_replicas_in_sync
        with cross_replica():
            return self.assign(self._rows(indices, rows, how))

    def _context_of_all(self) -> Any:
        """Returns the context of a replica that shares the variable's only value with others; else `None`."""
        if replica_scope() is None or self.aggregation not in ("sum", "mean") or self.synchronization == "on_read":
            return None
        context: Any = get_replica_context()
        return context if context is not None and context.num_replicas_in_sync > 1 else None

    def _rows(self, indices: Tensor, rows: Tensor, how: str) -> Any:
        value = jnp.asarray(self.read_value())
        return getattr(value.at[indices], how)(jnp.asarray(rows).astype(value.dtype))

    def _zeros_with(self, delta: Trackable) -> Any:
        # What replicas add is summed, or averaged, by the variable's aggregation: it has to be the change alone.
        value = jnp.asarray(self.read_value())
        indices, rows = _parts(delta)
        return jnp.zeros_like(value).at[indices].add(rows.astype(value.dtype))


def _parts(delta: Trackable) -> tuple[Any, Any]:
    indices, rows = getattr(delta, "indices", None), getattr(delta, "values", None)
    if indices is None or rows is None or callable(rows):
        raise ArgumentTypeError(
            f"Argument `sparse_delta` must be a `tf.IndexedSlices`. Received: {delta!r:.80}. "
            "Write tf.IndexedSlices(values, indices)."
        )
    return jnp.asarray(indices), jnp.asarray(rows)
